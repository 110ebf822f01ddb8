"""ER-MIR: experience replay of the maximally interfered samples (Aljundi et al. 2019)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_counts
from ..gradients.calling import call_with
from ..gradients.restoring import in_mode
from ..memory import ReplayMemory, Samples
from ..selection.mir import most_interfered
from .base import weighted_mean
from .optimized import rates
from .rehearsal import Rehearsal


class ERMIR(Rehearsal):
    """θᵛ = θ − η ∇L(batch); of `search` memory samples, those whose loss rises most from θ to θᵛ are replayed.

    Give it a memory with policy="reservoir". With `adapt` the batch is picked from by the same rule: the samples
    whose loss the virtual step helps least.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        search: int = 50,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, memory, **shared)
        check_counts(search=search)
        memory.require_reservoir()
        self.search = search

    def choose(self, samples: Samples, k: int) -> Tensor:
        with torch.no_grad():
            finite = self._losses(samples.inputs, samples.targets).isfinite()
        # a finite sample stands in, with no weight, for one that is not: zero times its gradient would still be NaN
        places = torch.arange(len(samples), device=self.device)
        by = samples[places.where(finite, finite.int().argmax())]
        chosen = self._interfered(samples, self._virtual_step(by, finite), k)
        return chosen.masked_fill(~finite[chosen], -1)

    def _replayed(self, samples: Samples) -> Samples | None:
        if not len(self.memory):
            return None
        found = self.memory.sample(self.search, self.generator)
        everyone = torch.ones(len(samples), dtype=torch.bool, device=self.device)
        with in_mode(self.model, "eval"):  # dropout would drown the difference
            virtual = self._virtual_step(samples, everyone)
            return found[self._interfered(found, virtual, self.replay)]

    @torch.no_grad()
    def _interfered(self, samples: Samples, virtual: Mapping[str, Tensor], k: int) -> Tensor:
        before = self._losses(samples.inputs, samples.targets)
        after = self.loss_fn(call_with(self.model, virtual, samples.inputs), samples.targets)
        return most_interfered(before, after, k)

    def _virtual_step(self, samples: Samples, valid: Tensor) -> dict[str, Tensor]:
        """θ − η ∇L(valid samples), without touching the model."""
        with torch.enable_grad():
            loss = weighted_mean(self._losses(samples.inputs, samples.targets), valid)
        gradients = torch.autograd.grad(loss, list(self.parameters.values()), materialize_grads=True)
        lr = rates(self.optimizer)
        moved = zip(self.parameters.items(), gradients, strict=True)
        return {name: (p - lr.get(id(p), 0.0) * gradient).detach() for (name, p), gradient in moved}

    def _remember(self, samples: Samples, valid: Tensor) -> None:
        # what stands in for missing picks is there already; on a card, where a look would wait, it is kept once more
        self.memory.add(samples if valid.is_cuda else samples[valid], self.generator)
