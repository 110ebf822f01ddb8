"""A stream is a sequence of tasks that are made when asked for; nothing of a task stays once it is let go."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import torch
from torch import Tensor

from corestream.streams.batches import Batches, Half
from corestream.streams.samples import AnySamples, JointSamples

SCENARIOS = ("domain", "task", "class")
TEST_BATCH_SIZE = 256
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Plan:
    """What a task will be: its classes and how its two halves are made."""

    classes: tuple[int, ...]
    train: Callable[[], AnySamples]
    test: Callable[[], AnySamples]
    title: str = ""


@dataclass(frozen=True, eq=False)
class Task:
    """One task of a stream; `train` and `test` are iterables of batches."""

    index: int
    classes: tuple[int, ...]
    train: Batches
    test: Batches
    title: str = ""


@dataclass(frozen=True, eq=False)
class Stream(Sequence[Task]):
    """A sequence of tasks. Every `stream[i]` is a fresh task: its epochs count from 0."""

    name: str
    scenario: str
    input_shape: tuple[int, ...]
    num_classes: int
    batch_size: int
    plans: tuple[Plan, ...] = field(repr=False)
    seed: int = 0
    drop_last: bool = False
    class_names: tuple[str, ...] = field(default=(), repr=False)
    settings: dict[str, Any] = field(default_factory=dict)
    files_note: str = ""
    skipped: tuple[str, ...] = field(default=(), repr=False)
    data: object = field(default=None, repr=False)  # what was read; other streams share it
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def num_tasks(self) -> int:
        return len(self.plans)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "Stream": ...
    def __getitem__(self, index: int | slice) -> "Task | Stream":
        if isinstance(index, slice):
            if index.indices(len(self))[0::2] != (0, 1):
                raise ValueError(f"a stream can only be cut at its end, as in stream[:3]; got {index}")
            return replace(self, plans=self.plans[index])
        number = range(len(self))[index]
        plan = self.plans[number]
        train = Half(plan.train, key=(self.seed, self.name, number), device=self.device, reshuffle=True)
        test = Half(plan.test, key=(self.seed, self.name, number), device=self.device, reshuffle=False)
        return Task(
            number,
            plan.classes,
            Batches(train, batch_size=self.batch_size, drop_last=self.drop_last),
            Batches(test, batch_size=TEST_BATCH_SIZE),
            plan.title,
        )

    def __iter__(self) -> Iterator[Task]:
        return (self[i] for i in range(len(self)))

    def classes_of(self, task: int) -> tuple[int, ...]:
        """The classes of a task, without making it."""
        return self.plans[task].classes

    def to(self, device: torch.device | str) -> "Stream":
        """The same stream, its images on that device."""
        return replace(self, device=_with_index(torch.device(device)))

    def joint(self) -> "Stream":
        """All tasks' data as one task, for multitask training; it holds every task's images while in use."""
        plans = self.plans
        plan = Plan(
            tuple(sorted({label for plan in plans for label in plan.classes})),
            lambda: JointSamples(tuple(plan.train() for plan in plans)),
            lambda: JointSamples(tuple(plan.test() for plan in plans)),
            "all tasks",
        )
        return replace(self, name=f"{self.name} (joint)", plans=(plan,))

    def describe(self) -> dict[str, Any]:
        """The facts of the benchmark card; counting needs the labels, not the images."""
        train, test = [plan.train() for plan in self.plans], [plan.test() for plan in self.plans]
        return {
            "name": self.name,
            "scenario": self.scenario,
            "seed": self.seed,
            "tasks": len(self),
            "classes": len({label for plan in self.plans for label in plan.classes}),
            "outputs": self.num_classes,
            "input_shape": list(self.input_shape),
            "batch_size": self.batch_size,
            "train": [len(samples) for samples in train],
            "test": [len(samples) for samples in test],
            "titles": [plan.title for plan in self.plans],
            "classes_per_task": [list(plan.classes) for plan in self.plans],
            "class_names": list(self.class_names),
            "train_per_class": [_counts(samples.targets) for samples in train],
            "test_per_class": [_counts(samples.targets) for samples in test],
            "noise_samples": [int(samples.is_noise.sum()) for samples in train],
            "flipped_labels": [int((samples.targets != samples.noisy_targets).sum()) for samples in train],
            "settings": self.settings,
            "skipped": list(self.skipped),
            "files_note": self.files_note,
        }


def _counts(labels: Tensor) -> dict[str, int]:
    return {str(label): count for label, count in sorted(Counter(labels.tolist()).items())}


def _with_index(device: torch.device) -> torch.device:
    """`cuda` as the device tensors will report, so that the images are copied there once."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
