"""Every number a run is judged by.

The accuracy matrix a[t, i] is the test accuracy on task i after learning task t.
"""

from __future__ import annotations

import math
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corestream.gradients.restoring import in_mode


@dataclass(frozen=True)
class Evaluation:
    """How many test samples of each class there are, and how many were predicted right."""

    correct: Tensor
    total: Tensor

    @property
    def accuracy(self) -> float:
        return int(self.correct.sum()) / int(self.total.sum())


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Sequence[Tensor]], num_classes: int) -> Evaluation:
    """Accuracy over batches (x, y) or (x, y, task) in eval mode; the model's mode is restored."""
    correct: Tensor | None = None
    total: Tensor | None = None
    with in_mode(model, "eval"):
        for x, y, *task in batches:
            outputs = model(x, *task)
            # NaN is the largest of a row for argmax: an output that is no number is right about nothing
            right = ((outputs.argmax(1) == y) & ~outputs.isnan().any(1)).long()
            if correct is None or total is None:
                correct = torch.zeros(num_classes, dtype=torch.long, device=y.device)
                total = torch.zeros_like(correct)
            correct.scatter_add_(0, y, right)
            total.scatter_add_(0, y, torch.ones_like(y))
    if correct is None or total is None:
        raise ValueError("batches is empty: there is nothing to evaluate on")
    return Evaluation(correct, total)


def average_accuracy(matrix: Tensor, learned: int | None = None) -> float:
    """A_t = 1/t · Σ_{i≤t} a[t, i] after `learned` = t tasks; after all of them where none is given."""
    t = _learned(matrix, learned)
    return float(matrix[t - 1, :t].mean())


def forgetting(matrix: Tensor, learned: int | None = None) -> float:
    """F = 1/(T−1) · Σ_{i<T} max_{t<T} (a[t, i] − a[T, i]), over the t at which task i was measured.

    A task that was never better than at the end counts negative. After a single task F is 0.
    """
    t = _learned(matrix, learned)
    if t == 1:
        return 0.0
    before = matrix[: t - 1, : t - 1]
    peak = before.nan_to_num(nan=-math.inf).max(dim=0).values
    return float((peak - matrix[t - 1, : t - 1]).mean())


def backward_transfer(matrix: Tensor, learned: int | None = None) -> float:
    """1/(T−1) · Σ_{i<T} (a[T, i] − a[i, i]): what later tasks did to earlier ones."""
    t = _learned(matrix, learned)
    if t == 1:
        return 0.0
    return float((matrix[t - 1, : t - 1] - matrix.diagonal()[: t - 1]).mean())


def learning_accuracy(matrix: Tensor, learned: int | None = None) -> float:
    """1/T · Σ_i a[i, i]: the accuracy on each task just after learning it."""
    t = _learned(matrix, learned)
    return float(matrix.diagonal()[:t].mean())


def summary(matrix: Tensor, learned: int | None = None) -> dict[str, float]:
    """The four averages by name."""
    return {
        "average_accuracy": average_accuracy(matrix, learned),
        "forgetting": forgetting(matrix, learned),
        "backward_transfer": backward_transfer(matrix, learned),
        "learning_accuracy": learning_accuracy(matrix, learned),
    }


def _learned(matrix: Tensor, learned: int | None) -> int:
    tasks = len(matrix)
    if matrix.ndim != 2 or matrix.shape[1] != tasks or tasks == 0:
        raise ValueError(f"matrix has shape {tuple(matrix.shape)}; expected is a square one, a[t, i]")
    t = tasks if learned is None else learned
    if not 1 <= t <= tasks:
        raise ValueError(f"learned is {learned}; allowed are 1 to {tasks}")
    return t


def memory_composition(memory: Any, corrupted: Sequence[Tensor]) -> dict[str, Any]:
    """What a replay memory holds: samples per task and per class, and the share that is noise.

    `corrupted[t]` says for each training sample of task t whether it was corrupted; the memory's `ids` lead
    to it. The share counts the samples whose origin is known, and is None where no origin is.
    """
    tasks, targets, ids = memory.tasks.cpu(), memory.targets.cpu(), memory.ids.cpu()
    known = [mask[ids[(tasks == task) & (ids >= 0)]] for task, mask in enumerate(corrupted)]
    counted = sum(map(len, known))
    return {
        "samples": len(targets),
        "tasks": _histogram(tasks),
        "classes": _histogram(targets) if targets.ndim == 1 and not targets.is_floating_point() else None,
        "noise": sum(int(part.sum()) for part in known) / counted if counted else None,
    }


def _histogram(values: Tensor) -> dict[int, int]:
    return dict(sorted(Counter(values.tolist()).items()))


def peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # getrusage counts kilobytes on Linux and bytes on macOS
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
