"""What becomes of the samples that were picked: candidates, and from them the memory (Algorithm 1; Eq. 6)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_counts
from ..gradients import PerSampleGradients, is_batch_coupled
from ..gradients.calling import Inputs, Parameters, trainable
from ..gradients.capture import capture
from ..gradients.independence import look
from ..gradients.restoring import MODES, in_mode, unchanged_buffers
from ..memory import ReplayMemory, Reservoir, Samples
from ..memory.balance import balanced, groups
from ..selection.herding import herding_per_class
from .base import Learner, check_memory
from .bilevel import check_classes, check_outputs, tangent_coreset
from .features import features
from .worth import PASS_SIZE, worth_among, worth_by_task, worth_task_by_task

RANKING = ("herding", "bilevel")  # ways to fill the memory that put candidates in an order when a task ends
FILLS = ("random", "score", *RANKING)


class KeepsPicks(Learner):
    """A learner whose picks may enter the memory. Its arguments are those of OCS, where they are explained."""

    memory: ReplayMemory
    candidates: Reservoir
    _coupled = False  # whether a pass has shown that samples depend on each other

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        candidates: int,
        fill: str,
        task_free: bool,
        parameters: Parameters | None,
        score_mode: str | None,
        max_bytes: int,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, **shared)
        check_counts(candidates=candidates, max_bytes=max_bytes)
        if fill not in FILLS:
            raise ValueError(f"fill must be one of {', '.join(map(repr, FILLS))}, got {fill!r}")
        if not isinstance(task_free, bool):
            raise ValueError(f"task_free must be True or False, got {task_free!r}")
        if fill in RANKING and task_free:
            raise ValueError(f"fill={fill!r} chooses when a task ends, and task_free=True knows no end")
        if score_mode not in MODES:
            raise ValueError(f"score_mode must be None, 'train' or 'eval', got {score_mode!r}")
        check_memory(memory)
        memory.require_shares()
        if task_free and memory.policy != "quota":
            raise ValueError(
                f"task_free=True keeps picks by class alone; a memory of policy={memory.policy!r} has shares of tasks"
            )
        self.memory, self.candidates = memory, Reservoir(candidates)
        self.fill, self.task_free, self.score_mode, self.max_bytes = fill, task_free, score_mode, max_bytes
        self.selected = None if parameters is None else list(trainable(self.model, parameters))
        self._keys = torch.empty(0, device=self.device)  # task_free: a random number for each sample kept

    def start_sweep(self) -> None:
        """Candidates for the memory are the picks from here on."""
        self.candidates.clear()

    def _check_fill(self, inputs: Inputs, targets: Tensor) -> None:
        """Refuse a model or targets that `fill` cannot work with at the first batch, and not only when a task ends."""
        if self.fill == "bilevel":
            check_classes(targets)
        if self._kind is None and self.fill == "bilevel":
            check_outputs(self.model, inputs, targets)
        elif self._kind is None and self.fill == "herding":
            with in_mode(self.model, "eval"), unchanged_buffers(self.model):
                features(self.model, inputs)

    def _remember(self, inputs: Inputs, targets: Tensor, ids: Tensor | None, picked: Tensor) -> None:
        samples = Samples.of(inputs, targets, self.task, ids)
        if self.task_free:
            self._join_memory(samples[picked[picked >= 0]])
        else:
            self.candidates.add(samples, picked, self.generator)

    def _finish_task(self, data: Iterable[Any] | None) -> None:
        """Fill the memory from the candidates, J/t a task, and shrink the older tasks: to the best S + V of what they hold, or to what
        was put first."""
        kept = self.candidates.kept()
        if not self.task_free and kept is not None:
            if self.fill in RANKING:
                self.memory.store_first(self._best_first(kept), kept, self.generator)
            else:
                priority = self._worth(kept) if self.fill == "score" else None
                worth = self._worth_of_kept() if self.memory.shrinks_for(kept) else None
                self.memory.store(kept, priority=priority, shrink_priority=worth, generator=self.generator)
        self.candidates.clear()

    def _best_first(self, samples: Samples) -> Tensor:
        """What Bilevel's greedy choice puts first of all, or herding in each class, or in each group of the memory's own."""
        quota = self.memory.quota(samples)
        with in_mode(self.model, "eval"):
            if self.fill == "bilevel":
                return tangent_coreset(
                    self.model, samples, quota, generator=self.generator, max_bytes=self.max_bytes
                )
            seen = features(self.model, samples.inputs)
        return herding_per_class(seen, groups(samples.targets, self.memory.balance), quota)

    def _worth_of_kept(self) -> Tensor:
        """S + V of each older task's samples among themselves: where samples do not depend on each other, all from one pass."""
        with in_mode(self.model, self.score_mode):
            kept = self.memory.samples
            if is_batch_coupled(self.model) or len(kept) > PASS_SIZE or self._depend_on_each_other(kept):
                return self._worth_task_by_task()
            grads = self._gradients(kept.inputs, kept.targets, self._wanted)
            if grads.coupled:
                return self._worth_task_by_task()
        return worth_by_task(self.memory, grads)

    def _depend_on_each_other(self, kept: Samples) -> bool:
        """On a card, where a look would wait, what the steps have shown must do."""
        if self._coupled or self.device.type == "cuda":
            return self._coupled
        return not look(self.model, self.loss_fn, kept.inputs, kept.targets)

    def _worth_task_by_task(self) -> Tensor:
        return worth_task_by_task(self.memory, self._worth)

    def _worth(self, samples: Samples) -> Tensor:
        """S + V of samples among themselves, under the model as it is."""
        with in_mode(self.model, self.score_mode):
            return worth_among(samples, lambda part: self._gradients(part.inputs, part.targets, self._wanted))

    def _join_memory(self, samples: Samples) -> None:
        """Without task boundaries: what is picked is kept at once, and the fullest class gives up its least worthy.

        Where chance decides, each sample has one number for as long as it is kept: so a class's are a uniform sample of all its picks,
        where numbers drawn anew would soon leave the last ones alone.
        """
        joined = samples if not len(self.memory) else Samples.join([self.memory.samples, samples])
        # a memory that was filled elsewhere has no numbers yet
        known = self._keys if len(self._keys) == len(self.memory) else self._keys[:0]
        chance = torch.rand(len(joined) - len(known), generator=self.generator, device=self.device)
        self._keys = torch.cat([known, chance])
        if len(joined) > self.memory.capacity:
            priority = self._worth(joined) if self.fill == "score" else self._keys
            members = groups(joined.targets, self.memory.balance)
            stay = balanced(members, self.memory.capacity, priority).sort().values
            joined, self._keys = joined[stay], self._keys[stay]
        self.memory.replace(joined)

    @property
    def _wanted(self) -> dict[str, Tensor]:
        """The parameters that selection looks at."""
        if self.selected is None:
            return self.parameters
        wanted = {name: self.parameters[name] for name in self.selected if name in self.parameters}
        if not wanted:
            raise ValueError("parameters: none of those that selection looks at is trainable any more")
        return wanted

    def _gradients(self, inputs: Inputs, targets: Tensor, wanted: dict[str, Tensor]) -> PerSampleGradients:
        with unchanged_buffers(self.model, self.loss_fn):
            return capture(self.model, self.loss_fn, inputs, targets, wanted, self.max_bytes)

    def _state(self) -> dict[str, Tensor]:
        return {"keys": self._keys} if self.task_free else {}

    def _load_state(self, state: dict[str, Tensor]) -> None:
        if self.task_free:
            self._keys = state["keys"].clone()
