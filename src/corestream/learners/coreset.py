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
    end of a task the memory takes its share of what `choose` puts first among them, and older tasks shrink from the
    back of their own order. Where the memory is balanced by class, each class gives its first.
    """

    candidates: Reservoir

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        candidates: int = 1000,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, memory, **shared)
        check_counts(candidates=candidates)
        memory.require_shares()
        self.candidates = Reservoir(candidates)

    def start_sweep(self) -> None:
        """Candidates for the memory are the samples from here on."""
        self.candidates.clear()

    def _remember(self, samples: Samples, valid: Tensor) -> None:
        self.candidates.add(samples, valid_positions(valid), self.generator)

    def _finish_task(self, data: Iterable[Any] | None) -> None:
        kept = self.candidates.kept()
        if kept is not None:
            with in_mode(self.model, "eval"):
                chosen = self.choose(kept, self.memory.quota(kept))
            _check_places(chosen, len(kept))
            self.memory.store_first(chosen, kept, self.generator)
        self.candidates.clear()


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
