"""What every network of the shelf shares: an embedding, one output layer, and heads made by masking."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """`forward(x, task)` is the output layer on `embed(x)`.

    With `heads`, the classes of each task, the network is multi-head: the logits of the classes that a
    sample's task does not have are masked, so softmax and gradient see the task's own classes only.
    """

    head_mask: Tensor | None
    head: nn.Linear

    def __init__(self, num_classes: int, heads: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__()
        mask = None if heads is None else _mask(heads, num_classes)
        self.register_buffer("head_mask", mask, persistent=False)

    def embed(self, x: Tensor) -> Tensor:
        """The input of the output layer, [N, features]."""
        raise NotImplementedError

    def forward(self, x: Tensor, task: Tensor | None = None) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        if self.head_mask is None:
            return logits
        if task is None:
            raise ValueError(
                f"task is None, but this network has {len(self.head_mask)} heads: "
                "call model(x, task) with the task id of each sample"
            )
        # infinite, so that a target outside its task's classes is an infinite loss and is noticed
        return logits.masked_fill(~self.head_mask[task], -torch.inf)


def _mask(heads: Sequence[Sequence[int]], num_classes: int) -> Tensor:
    mask = torch.zeros(len(heads), num_classes, dtype=torch.bool)
    for task, classes in enumerate(heads):
        if not classes or min(classes) < 0 or max(classes) >= num_classes:
            raise ValueError(
                f"heads[{task}] is {list(classes)}; allowed are classes from 0 to {num_classes - 1}"
            )
        mask[task, list(classes)] = True
    return mask
