"""The skeleton of the methods that choose at the end of a task what the memory keeps of it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_counts
from ..gradients.restoring import in_mode
from ..memory import ReplayMemory, Reservoir, Samples
from .finetune import valid_positions
from .rehearsal import Rehearsal


class Coreset(Rehearsal):
    """Methods differ in `choose`.

    Candidates for the memory are a random `candidates` of the samples trained on since the last sweep began. At the
    end of a task the memory takes its share of what `choose` puts first among them. An older task that must shrink gives
    up what was chosen last (`shrink="order"`), or `choose` chooses among what it has left, with the model of now ("anew", as in
    the authors' program). Where the memory is balanced by class, each class gives its first.
    """

    candidates: Reservoir

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        candidates: int = 1000,
        shrink: str = "order",
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, memory, **shared)
        check_counts(candidates=candidates)
        if shrink not in ("order", "anew"):
            raise ValueError(f"shrink must be 'order' or 'anew', got {shrink!r}")
        memory.require_shares()
        self.shrink = shrink
        self.candidates = Reservoir(candidates)

    def start_sweep(self) -> None:
        """Candidates for the memory are the samples from here on."""
        self.candidates.clear()

    def _remember(self, samples: Samples, valid: Tensor) -> None:
        self.candidates.add(samples, valid_positions(valid), self.generator)

    def _finish_task(self, data: Iterable[Any] | None) -> None:
        kept = self.candidates.kept()
        if kept is not None:
            quota = self.memory.quota(kept)
            with in_mode(self.model, "eval"):
                older = self._chosen_anew(quota) if self._chooses_anew(kept) else None
                chosen = self._choice(kept, quota)
            self.memory.store_first(chosen, kept, self.generator, shrink_priority=older)
        self.candidates.clear()

    def _choice(self, samples: Samples, k: int) -> Tensor:
        chosen = self.choose(samples, k)
        _check_places(chosen, len(samples))
        return chosen

    def _chooses_anew(self, candidates: Samples) -> bool:
        return self.shrink == "anew" and self.memory.shrinks_for(candidates)

    def _chosen_anew(self, quota: int) -> Tensor:
        """How early each remembered sample is chosen among those of its task; what is not chosen comes last."""
        priority = torch.full((len(self.memory),), -torch.inf)
        for places in self.memory.places_by_task():
            chosen = self._choice(self.memory.samples[places.to(self.device)], quota).cpu()
            chosen = chosen[chosen >= 0]
            priority[places[chosen]] = -torch.arange(len(chosen), dtype=priority.dtype)
        return priority


def _check_places(chosen: object, count: int) -> None:
    expected = f"expected a tensor of places among the {count} candidates"
    if not isinstance(chosen, Tensor):
        raise TypeError(f"choose returned {type(chosen).__name__}; {expected}")
    if chosen.ndim != 1 or chosen.dtype != torch.int64:
        raise TypeError(
            f"choose returned a tensor of {chosen.dtype} and shape {list(chosen.shape)}; {expected}"
        )
    outside = chosen[(chosen < -1) | (chosen >= count)]  # −1 stands for none
    if len(outside):
        raise ValueError(f"choose returned the place {int(outside[0])}; {expected}")
