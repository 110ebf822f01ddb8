"""GSS: gradient-based sample selection in its greedy form (Aljundi, Lin, Goujaud and Bengio 2019)."""

from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_counts
from ..gradients import per_sample_gradients
from ..gradients.restoring import in_mode
from ..memory import ReplayMemory, Samples
from ..selection.gss import gss_replace, gss_scores
from ..selection.scores import top
from ..states import part_of, prefixed
from .base import weighted_mean
from .rehearsal import Rehearsal


class GSS(Rehearsal):
    """A sample's score is 1 + its largest cosine with `compare` random memory samples, by gradient.

    Samples are added while there is room; then those that oppose what is stored take the place of similar ones, by
    chance. With `adapt` the k samples of lowest score are trained on. Everything is kept in slots of fixed shape, so
    that a step never waits for the device; `memory` shows them when a task has ended.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        compare: int = 10,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, memory, **shared)
        check_counts(compare=compare)
        memory.require_shares()
        if memory.replay_from == "task":
            raise ValueError(
                "memory: replay_from='task' draws from one task, and GSS draws from its slots, which know no tasks: give "
                "replay_from='memory'"
            )
        if len(memory):
            raise ValueError(
                f"memory already holds {len(memory)} samples, and GSS does not know by which scores they came in: give an empty one, and "
                "load the state of the learner that filled it"
            )
        self.compare = compare
        self._slots: Samples | None = None
        self._scores = torch.zeros(memory.capacity, device=self.device)
        self._filled = torch.zeros((), dtype=torch.long, device=self.device)

    def phase(self) -> Hashable:
        """The first step has nothing to compare with; afterwards all shapes are fixed."""
        return self.task, self._slots is None

    def choose(self, samples: Samples, k: int) -> Tensor:
        return top(-self._compared(samples), k)

    def _objective(self, samples: Samples, valid: Tensor) -> Tensor:
        loss = weighted_mean(self._losses(samples.inputs, samples.targets), valid)
        if self._slots is None:
            return loss
        replayed, there = self._drawn(self._slots, self.replay)
        return loss + self.lam * weighted_mean(self._losses(replayed.inputs, replayed.targets), there)

    def _remember(self, samples: Samples, valid: Tensor) -> None:
        """Scored after the update, as the authors do."""
        with in_mode(self.model, "eval"):
            scores = self._compared(samples)
        draws = torch.rand(len(samples), 2, generator=self.generator, device=self.device)
        result = gss_replace(self._scores, self._filled, scores.where(valid, torch.inf), draws)
        if self._slots is None:
            room = self.memory.capacity + 1  # one slot more than the capacity takes what is not kept
            self._slots = samples.map(lambda column: column.new_zeros(room, *column.shape[1:]))
        place = torch.where(result.slots >= 0, result.slots, self.memory.capacity)
        for column, values in zip(self._slots.columns(), samples.columns(), strict=True):
            column.index_copy_(0, place, values.to(column.dtype))
        self._scores.copy_(result.scores)
        self._filled.copy_(result.filled)

    def _compared(self, samples: Samples) -> Tensor:
        grads = per_sample_gradients(self.model, self.loss_fn, (samples.inputs, samples.targets))
        norms = torch.where(grads.finite, grads.norms(), torch.nan)
        if self._slots is None:
            nothing = norms.new_zeros(len(samples), 1)
            return gss_scores(nothing, norms, nothing[0], nothing[0] > 0)
        stored, there = self._drawn(self._slots, self.compare)
        others = per_sample_gradients(self.model, self.loss_fn, (stored.inputs, stored.targets))
        return gss_scores(grads.gram(others), norms, others.norms(), there & others.finite)

    def _drawn(self, slots: Samples, count: int) -> tuple[Samples, Tensor]:
        """Random slots without replacement, and which of them hold a sample."""
        keys = torch.rand(self.memory.capacity, generator=self.generator, device=self.device)
        taken = torch.arange(self.memory.capacity, device=self.device) < self._filled
        best = torch.where(taken, keys, -1.0).topk(min(count, self.memory.capacity))
        there = best.values >= 0
        # a filled slot stands in, with no weight, for those that are empty
        return slots[best.indices.where(there, best.indices[0])], there

    def _kept_so_far(self) -> Samples | None:
        return self._slots

    def _finish_task(self, data: Iterable[Any] | None) -> None:
        if self._slots is not None:
            self.memory.replace(self._slots[: int(self._filled)].map(Tensor.clone))

    def _state(self) -> dict[str, Tensor]:
        slots = {} if self._slots is None else prefixed("slots.", self._slots.state_dict())
        return {"scores": self._scores, "filled": self._filled, **slots}

    def _load_state(self, state: dict[str, Tensor]) -> None:
        self._scores.copy_(state["scores"])
        self._filled.copy_(state["filled"])
        slots = part_of(state, "slots.")
        self._slots = Samples.from_state_dict(slots).map(Tensor.clone) if slots else None
