"""Embedding: the output gradient filed under the looked-up index."""

import torch
from torch import Tensor, nn

from ..blocks import Block, Lookup
from .rule import Seen, register


def _events(module: nn.Module, x: Tensor) -> tuple[int, int]:
    return 0, 1


@register(nn.Embedding, events=_events)
def embedding(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, nn.Embedding)
    index, gradient = seen.inputs, seen.gradient
    rows = module.weight.shape[0]  # which may have been enlarged since the module was made
    if module.padding_idx is not None:
        gradient = torch.where((index == module.padding_idx).unsqueeze(-1), 0, gradient)
    if module.scale_grad_by_freq:
        counts = torch.bincount(index.flatten(), minlength=rows)
        gradient = gradient / counts[index].unsqueeze(-1)
    return [Lookup(seen.names["weight"], rows, index, gradient, seen.max_bytes)]
