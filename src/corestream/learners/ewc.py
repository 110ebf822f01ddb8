"""Elastic weight consolidation (Kirkpatrick et al. 2017)."""

import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_counts, check_not_negative
from ..gradients import per_sample_gradients
from ..gradients.calling import Inputs, join_batches
from ..gradients.per_sample import compute_dtype
from ..gradients.restoring import in_mode
from ..memory import Reservoir, Samples
from ..states import prefixed
from .finetune import Finetune, valid_positions
from .optimized import outside, rates

FISHER_BATCH = 100  # samples; batches as small as the stream's would make the Fisher slow


class EWC(Finetune):
    """L(θ) + penalty/2 · Σ_t Σ_i F_t,i (θ_i − θ*_t,i)², F_t the Fisher diagonal over task t's data at its end θ*_t.

    The sum over tasks is, up to a constant, one quadratic: Σ_i F_i (θ_i − θ̄_i)² with F = Σ F_t and θ̄ the mean of the
    θ*_t weighted by F_t. So two tensors per parameter hold any number of tasks. Where `end_task` gets no data, a
    random `candidates` of what was trained on serves.

    A parameter whose penalty is too steep for its learning rate would be thrown about by it, and is held instead: penalty · F counts for
    at most 1 / lr. (BatchNorm divides a channel that is the same for all samples by almost nothing, and its F is huge.) A parameter that
    no sample has used yet, as that of a later task's head, is left alone.
    """

    candidates: Reservoir
    follows_model = False  # F and θ̄ are those of the parameters that it began with

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        penalty: float = 30.0,
        candidates: int = 1000,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, **shared)
        check_not_negative(penalty=penalty)
        check_counts(candidates=candidates)
        self.penalty = penalty
        # sums over many samples, and small differences, are too fine for half precision
        wide = compute_dtype(self.parameters)
        self.fisher = {name: torch.zeros_like(p, dtype=wide) for name, p in self.parameters.items()}
        self.anchor = {name: p.detach().to(wide, copy=True) for name, p in self.parameters.items()}
        # a penalty of zero would still be a gradient, with which weight decay and momentum move a parameter
        self._used: list[str] = []  # parameters whose F is not zero everywhere
        self.candidates = Reservoir(candidates)

    @property
    def _keeps_samples(self) -> bool:
        return True  # for the Fisher

    def _objective(self, samples: Samples, valid: Tensor) -> Tensor:
        loss = super()._objective(samples, valid)
        if not self._used:
            return loss
        steep = {one: self.penalty * lr for one, lr in rates(self.optimizer).items()}
        steepest = {name: 1 / steep[id(p)] for name, p in self.parameters.items() if steep.get(id(p), 0) > 0}
        return loss + self.penalty / 2 * self.distance(steepest)

    def distance(self, steepest: dict[str, float] | None = None) -> Tensor:
        """Σ_i F_i (θ_i − θ̄_i)², no F_i above its parameter's `steepest`."""
        limits = steepest or {}
        parts = [
            (self.fisher[name].clamp_max(limits.get(name, math.inf)) * (p - self.anchor[name]).square()).sum()
            for name, p in self.parameters.items()
            if name in self._used
        ]
        return torch.stack(parts).sum() if parts else torch.zeros((), device=self.device)

    def _remember(self, samples: Samples, valid: Tensor) -> None:
        self.candidates.add(samples, valid_positions(valid), self.generator)

    def _finish_task(self, data: Iterable[Any] | None) -> None:
        found = None if data is None else self._fisher(data)
        if data is not None and found is None:
            warnings.warn(
                "end_task: data gave no batch, as an iterator that was read before does; the samples kept on the way serve",
                stacklevel=outside(),
            )
        for name, fisher in (found or self._fisher(self._kept()) or {}).items():
            total = self.fisher[name] + fisher
            share = torch.where(total > 0, fisher / total, 1.0)
            self.anchor[name].lerp_(self.parameters[name].detach().to(share.dtype), share)
            self.fisher[name].copy_(total)
        self._note_used()
        self.candidates.clear()

    def _note_used(self) -> None:
        self._used = [name for name, fisher in self.fisher.items() if bool(fisher.any())]

    def _fisher(self, data: Iterable[Any]) -> dict[str, Tensor] | None:
        """The mean of g∘g over the samples whose loss and gradient are finite, g the gradient of a sample's own loss; None of no batch."""
        total = {name: torch.zeros_like(fisher) for name, fisher in self.fisher.items()}
        # by name, since the model may have thawed others that have no Fisher here
        learning = [name for name, p in self.parameters.items() if p.requires_grad]
        count, batches = torch.zeros((), dtype=torch.long, device=self.device), 0
        with in_mode(self.model, "eval"):
            for batch in _joined(data):
                grads = per_sample_gradients(self.model, self.loss_fn, batch, parameters=learning)
                for name, squares in grads.wide_squares().items():
                    total[name] += squares
                count += grads.finite.sum()
                batches += 1
        return {name: value / count.clamp_min(1) for name, value in total.items()} if batches else None

    def _kept(self) -> Iterable[Any]:
        kept = self.candidates.kept()
        for start in range(0, 0 if kept is None else len(kept), FISHER_BATCH):
            assert kept is not None
            part = kept[start : start + FISHER_BATCH]
            yield (part.inputs, part.targets)

    def _state(self) -> dict[str, Tensor]:
        return prefixed("fisher.", self.fisher) | prefixed("anchor.", self.anchor)

    def _load_state(self, state: dict[str, Tensor]) -> None:
        for name in self.parameters:
            self.fisher[name].copy_(state[f"fisher.{name}"])
            self.anchor[name].copy_(state[f"anchor.{name}"])
        self._note_used()


def _joined(data: Iterable[Any]) -> Iterator[tuple[Inputs, Tensor]]:
    """The batches (x, y) or (x, y, task), a hundred samples or more at a time."""
    waiting: list[tuple[Inputs, Tensor]] = []
    for batch in data:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise TypeError(
                f"end_task: data must give pairs (x, y), or triples (x, y, task), and gave a {type(batch).__name__}"
            )
        x, y, *task = batch
        waiting.append(((x, *task) if task else x, y))
        if sum(len(y) for _, y in waiting) >= FISHER_BATCH:
            yield join_batches(waiting)
            waiting = []
    if waiting:
        yield join_batches(waiting)
