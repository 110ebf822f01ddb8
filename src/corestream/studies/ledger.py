"""What a run has measured so far: only facts that two equal runs share bit for bit."""

import math
from typing import Any

import torch
from torch import Tensor

from corestream.fusing import fusible
from corestream.studies import metrics

USES = "ledger.uses"


class Ledger:
    """The accuracy matrix, and what was trained on and kept, task by task. It travels in the checkpoint."""

    def __init__(self, stream: Any, training: Any) -> None:
        self._stream, self._training = stream, training
        tasks = len(stream)
        self.matrix: list[list[float | None]] = [[None] * tasks for _ in range(tasks)]
        self.trained: list[dict[str, Any]] = []
        self.memory: list[dict[str, Any] | None] = []
        self.class_accuracy: dict[str, float] = {}
        self.learned = 0
        self._uses: Tensor | None = None
        self._corrupted: dict[int, Tensor] = {}
        self._averages: dict[str, float | None] | None = None

    def open_task(self, train: Any) -> None:
        if self._uses is None:  # a resumed task brings its own count
            self._uses = torch.zeros(train.num_samples, dtype=torch.int32)
        self._uses = self._uses.to(train.targets.device)

    def count(self, places: Tensor, picked: Tensor | None) -> None:
        """The picked of these places in the task's training set were trained on once more; −1 stands for none."""
        assert self._uses is not None
        if picked is None:
            self._uses.index_add_(0, places, torch.ones_like(places, dtype=torch.int32))
        else:
            _count(self._uses, places, picked)

    def close_task(self, correct: Tensor, total: Tensor, train: Any, memory: Any) -> None:
        """After a task: one row of the matrix from the right ones of each [task, class], what was trained on, what is kept."""
        assert self._uses is not None
        self.learned, self._averages = len(correct), None
        for number, (right, all_) in enumerate(
            zip(correct.sum(1).tolist(), total.sum(1).tolist(), strict=True)
        ):
            self.matrix[self.learned - 1][number] = right / all_
        self.class_accuracy = _class_accuracy(correct.sum(0).tolist(), total.sum(0).tolist())
        uses, targets = self._uses.cpu(), train.labels
        corrupted = self._corrupted[len(self.trained)] = train.corrupted
        self.trained.append(
            {
                "samples": int(uses.sum()),
                "distinct": int((uses > 0).sum()),
                "noise": _share(int(uses[corrupted].sum()), int(uses.sum())),
                "classes": _weighted_histogram(targets, uses),
            }
        )
        self.memory.append(self._composition(memory))
        self._uses = None

    def averages(self) -> dict[str, float | None]:
        """Average accuracy, forgetting and their kin over the tasks learned; None where it is not defined."""
        if self.learned == 0:
            return dict.fromkeys(("average_accuracy", "forgetting", "backward_transfer", "learning_accuracy"))
        if self._averages is None:  # asked for many times a second while many runs report
            rows = [[math.nan if value is None else value for value in row] for row in self.matrix]
            found = metrics.summary(torch.tensor(rows, dtype=torch.float64), self.learned)
            self._averages = {name: value if math.isfinite(value) else None for name, value in found.items()}
        return self._averages

    def tensors(self) -> dict[str, Tensor]:
        return {} if self._uses is None else {USES: self._uses}

    def facts(self) -> dict[str, Any]:
        return {
            "matrix": self.matrix,
            "trained": self.trained,
            "memory": self.memory,
            "class_accuracy": self.class_accuracy,
            "learned": self.learned,
        }

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.matrix, self.trained, self.memory = facts["matrix"], facts["trained"], facts["memory"]
        self.class_accuracy, self.learned = facts["class_accuracy"], facts["learned"]
        self._averages = None
        self._uses = tensors.get(USES)

    def _composition(self, memory: Any) -> dict[str, Any] | None:
        if memory is None or len(memory) == 0:
            return None
        for number in range(len(self.trained)):
            if number not in self._corrupted:  # a resumed run looks them up again
                self._corrupted[number] = self._training[number].train.corrupted
        corrupted = [self._corrupted[number] for number in range(len(self.trained))]
        found = metrics.memory_composition(memory, corrupted)
        return {**found, "tasks": _text_keys(found["tasks"]), "classes": _text_keys(found["classes"])}


@fusible
def _count(uses: Tensor, places: Tensor, picked: Tensor) -> None:
    uses.index_add_(0, places[picked.clamp_min(0)], (picked >= 0).int())


def _class_accuracy(correct: list[int], total: list[int]) -> dict[str, float]:
    return {str(label): correct[label] / count for label, count in enumerate(total) if count}


def _weighted_histogram(labels: Tensor, weights: Tensor) -> dict[str, int]:
    counts = torch.zeros(int(labels.max()) + 1, dtype=torch.int64).index_add_(0, labels, weights.long())
    return {str(label): count for label, count in enumerate(counts.tolist()) if count}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _text_keys(counts: dict[int, int] | None) -> dict[str, int] | None:
    """As JSON holds them, so that a resumed run and an uninterrupted one agree."""
    return None if counts is None else {str(key): count for key, count in counts.items()}
