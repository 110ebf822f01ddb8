"""Which sample belongs to which task, and which are held out for testing."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from corestream.counts import is_count
from corestream.errors import ConfigError, DataError
from corestream.streams.benchmarks.recipe import Group
from corestream.streams.datasets.dataset import Part

SPLITS = ("class", "label", "time")
CLASSES_PER_TASK, NUM_TASKS = 2, 5
ALL_KEPT = (
    "none of its classes has two samples in it, and the last one stays for training: "
    "give more samples, larger tasks, or test samples of their own"
)


def usual_scenario(split: str) -> str:
    return "task" if split == "class" else "domain"


@dataclass(frozen=True)
class Split:
    """How tasks are made: classes a few at a time, a given label per sample, or pieces in the order of time."""

    by: str
    classes_per_task: int | None = None
    num_tasks: int | None = None
    task_labels: Tensor | None = None
    test_task_labels: Tensor | None = None

    def __post_init__(self) -> None:
        if self.by not in SPLITS:
            raise ConfigError(f"split={self.by!r}: expected one of {', '.join(SPLITS)}")
        if (self.by == "label") != (self.task_labels is not None):
            raise ConfigError(f"split={self.by!r}: give task_labels with split='label', and with no other")
        if self.by != "label" and self.test_task_labels is not None:
            raise ConfigError(f"test_task_labels: only split='label' takes them, and split is {self.by!r}")
        for name, value, by in (
            ("classes_per_task", self.classes_per_task, "class"),
            ("num_tasks", self.num_tasks, "time"),
        ):
            if value is not None and self.by != by:
                raise ConfigError(f"{name}={value!r}: only split={by!r} takes it, and split is {self.by!r}")
            if value is not None and not is_count(value):
                raise ConfigError(f"{name}={value!r}: expected a whole number of at least 1")

    def settings(self) -> dict[str, str | int]:
        own: dict[str, dict[str, str | int]] = {
            "class": {"classes_per_task": int(self.classes_per_task or CLASSES_PER_TASK)},
            "time": {"num_tasks": int(self.num_tasks or NUM_TASKS)},
            "label": {},
        }
        return {"split": self.by, **own[self.by]}

    def tasks_of(self, part: Part, classes: np.ndarray, *, test: bool = False) -> np.ndarray:
        """[n] the task of every sample; `classes` are those that occur, in order."""
        if self.by == "class":
            places = np.searchsorted(classes, part.labels.numpy())
            return places // (self.classes_per_task or CLASSES_PER_TASK)
        if self.by == "time":
            return np.arange(len(part)) * (self.num_tasks or NUM_TASKS) // len(part)
        task_labels = self.test_task_labels if test else self.task_labels
        if task_labels is None or task_labels.shape != part.labels.shape:
            name, half = ("test_task_labels", "test") if test else ("task_labels", "training")
            raise ValueError(f"{name}: expected one for each of the {len(part)} {half} samples")
        return task_labels.cpu().numpy()


def held_out(tasks: np.ndarray, labels: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """[n] bool: the test samples, a share of every class of every task, but never the last one of a class."""
    tested = np.zeros(len(labels), dtype=bool)
    for task in np.unique(tasks):
        for label in np.unique(labels[tasks == task]):
            rows = random.permutation(np.flatnonzero((tasks == task) & (labels == label)))
            tested[rows[: min(len(rows) - 1, max(1, round(share * len(rows))))]] = True
    return tested


def groups(
    split: Split,
    train: tuple[np.ndarray, np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray, np.ndarray],
    *,
    separate_test: bool,
) -> list[Group]:
    """The tasks, from (label of each sample, rows, task of each sample) of both halves."""
    made: list[Group] = []
    (labels, rows, tasks), (test_labels, test_rows, test_tasks) = train, test
    for task in np.unique(tasks[rows]):
        own, tested = rows[tasks[rows] == task], test_rows[test_tasks[test_rows] == task]
        title = f"label {task}" if split.by == "label" else f"task {len(made) + 1}"
        classes = tuple(int(label) for label in np.unique(labels[own]))
        if len(tested) == 0:
            advice = _test_samples_for(split, task, classes) if separate_test else ALL_KEPT
            raise DataError(f"{title} has no test samples; {advice}")
        if not np.isin(test_labels[tested], classes).any():
            advice = "give each task test samples of its classes, or no test set: a share is then held out"
            raise DataError(f"{title} has no test sample of a class that it trains on; {advice}")
        made.append(Group(classes, own, tested, title))
    return made


def _test_samples_for(split: Split, task: int, classes: tuple[int, ...]) -> str:
    if split.by == "class":
        return f"give test samples of class {' or '.join(str(label) for label in classes)}"
    if split.by == "label":
        return f"give test samples with {task} in test_task_labels"
    return f"give at least {split.num_tasks or NUM_TASKS} test samples, or fewer tasks"
