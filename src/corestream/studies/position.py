"""Where a run is in its stream, and what it learns from there."""

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Position:
    """Where in the stream the next batch is; `step` counts all batches so far."""

    task: int = 0
    sweep: int = 0
    batch: int = 0
    step: int = 0


@dataclass(frozen=True)
class Batch:
    """`index` is each sample's place in its task's training set."""

    x: Tensor
    y: Tensor
    task: Tensor | None
    index: Tensor
