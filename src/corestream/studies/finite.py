"""Values that are not finite, caught where they arise and named by task, step and sample.

On the processor each step is looked at; a device gathers, and is asked when it has to be waited for anyway.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn
from torch.nn.utils import get_total_norm

from corestream.errors import DataError, NonFiniteError
from corestream.learners import Learner, Step
from corestream.streams import Batches
from corestream.studies.position import Batch, Position

NAMED = 5  # samples named in a message


class FiniteWatch:
    """Zero times a finite value is zero, and NaN otherwise: one sum tells whether anything was not finite."""

    def __init__(self, device: str) -> None:
        self._at_once = device == "cpu"
        self._inputs = torch.zeros((), device=device)
        self._verified: Position | None = None

    def check_inputs(self, batch: Batch, position: Position) -> None:
        if not batch.x.is_floating_point():
            return
        self._inputs += batch.x.sum() * 0
        if self._at_once and not torch.isfinite(self._inputs):
            self._inputs.zero_()
            self._name_inputs(batch, position)  # names none where a sum of huge finite values overflowed

    def check_loss(self, step: Step) -> None:
        """A device's loss is not read, for that would wait: it spoils the parameters, which is found there."""
        if self._at_once and not torch.isfinite(step.loss):
            raise NonFiniteError("the loss is not finite")

    def look_at_inputs(self, train: Batches, position: Position) -> None:
        """Raise what was gathered since the last look; the bad inputs are found in the same batches again."""
        if not torch.isfinite(self._inputs):
            self._inputs.zero_()
            self._search(train, position)

    def look_at_parameters(self, model: nn.Module) -> None:
        """A gradient that was not finite leaves its mark here, even after the last step of all."""
        parameters = {name: value.detach() for name, value in model.named_parameters() if value.numel()}
        if torch.isfinite(get_total_norm(parameters.values(), math.inf)):  # one look for all of them
            return
        for name, parameter in parameters.items():
            if not torch.isfinite(parameter).all():
                raise NonFiniteError(f"parameter {name!r} is not finite; it was finite at {self._since()}")

    def verified(self, position: Position) -> None:
        self._verified = replace(position)

    @contextmanager
    def naming(self, learner: Learner, batch: Batch | None, position: Position) -> Iterator[None]:
        """Add to a NonFiniteError the task, the step and the samples."""
        try:
            yield
        except NonFiniteError as error:
            samples = "" if batch is None else _bad_losses(learner, batch)
            words = str(error).removeprefix(f"task {position.task}: ")  # a learner's own count, from 0
            raise NonFiniteError(f"{where(position)}: {words}{samples}") from error

    def _since(self) -> str:
        return "the start" if self._verified is None else f"step {self._verified.step}"

    def _search(self, train: Batches, position: Position) -> None:
        start = self._verified
        if start is None or start.task != position.task:
            start = replace(position, sweep=0, batch=0)
        for sweep in range(start.sweep, position.sweep + 1):
            first = start.batch if sweep == start.sweep else 0
            for number, (x, y, *_, index) in enumerate(train.batches(sweep, first), first):
                if not torch.isfinite(x).all():
                    self._name_inputs(Batch(x, y, None, index), replace(position, sweep=sweep, batch=number))

    @staticmethod
    def _name_inputs(batch: Batch, position: Position) -> None:
        finite = torch.isfinite(batch.x).flatten(1).all(1)
        bad = batch.index[~finite].tolist()
        if bad:
            raise DataError(
                f"{where(position)}: the input of training sample {_few(bad)} is NaN or infinite; "
                "correct these samples or take them out of the stream"
            )


def where(position: Position) -> str:
    return f"task {position.task + 1}, step {position.step} (sweep {position.sweep}, batch {position.batch})"


@torch.no_grad()
def _bad_losses(learner: Learner, batch: Batch) -> str:
    """Which samples' losses are not finite under the parameters as they are now."""
    outputs = learner.model(batch.x) if batch.task is None else learner.model(batch.x, batch.task)
    losses = torch.nn.functional.cross_entropy(outputs.float(), batch.y, reduction="none")
    bad = batch.index[~torch.isfinite(losses)].tolist()
    if len(bad) == len(losses):
        return "; every sample's loss is not finite now: the parameters have diverged"
    return f"; the loss of training sample {_few(bad)} is not finite" if bad else ""


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:NAMED]))
    return shown if len(numbers) <= NAMED else f"{shown} and {len(numbers) - NAMED} more"
