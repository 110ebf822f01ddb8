"""Finetune: plain SGD over the sequence of tasks, and the skeleton of the methods that change a part of it."""

import torch
from torch import Tensor, nn

from ..counts import check_counts
from ..draws import random_places
from ..gradients.calling import Inputs, LossFn, finite_samples
from ..memory import Samples
from .base import Learner, weighted_mean
from .step import Step


class Finetune(Learner):
    """Each batch is one step down its mean loss; with `k`, that of k random samples of it.

    Multitask is this on all tasks' data at once.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        k: int | None = None,
        loss_fn: LossFn | None = None,
        lr_decay: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(model, optimizer, loss_fn=loss_fn, lr_decay=lr_decay, generator=generator)
        if k is not None:
            check_counts(k=k)
        self.k = k

    @property
    def _remembers_all(self) -> bool:
        """Whether samples that were not trained on may be remembered too."""
        return False

    def _learn(self, inputs: Inputs, targets: Tensor, ids: Tensor | None) -> Step:
        samples = Samples.of(inputs, targets, self.task, ids)
        valid = torch.ones(len(samples), dtype=torch.bool, device=self.device)
        seen, picked = samples, self._pick(samples)
        if picked is not None:
            valid = picked >= 0
            # the best sample stands in, with no weight, for those that are missing
            samples = samples[picked.where(valid, picked[0]).clamp_min(0)]
        loss = self._update(samples, valid)
        if self._remembers_all:
            samples, valid = seen, finite_samples(seen.inputs)
        self._remember(samples, valid)
        return Step(self, loss, picked)

    def _pick(self, samples: Samples) -> Tensor | None:
        """The positions to train on, −1 for none; None for the whole batch."""
        if self.k is None or self.k >= len(samples):
            return None
        return random_places(len(samples), self.k, self.generator, self.device)

    def _update(self, samples: Samples, valid: Tensor) -> Tensor:
        loss = self._objective(samples, valid)
        self._spoil(~(loss.detach().isfinite() & valid.any()))
        self._descend(loss)
        return loss

    def _objective(self, samples: Samples, valid: Tensor) -> Tensor:
        return weighted_mean(self._losses(samples.inputs, samples.targets), valid)

    def _remember(self, samples: Samples, valid: Tensor) -> None:
        """What becomes of the samples just trained on, or of all that came."""


def valid_positions(valid: Tensor) -> Tensor:
    """The positions of the valid samples; −1 stands for those that are not."""
    return torch.where(valid, torch.arange(len(valid), device=valid.device), -1)
