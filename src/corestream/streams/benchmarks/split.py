"""Split CIFAR-100 and Split TinyImageNet: the classes of one dataset, a few per task."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from corestream.errors import ConfigError
from corestream.streams.benchmarks.recipe import Group, rows_stream
from corestream.streams.datasets import Dataset, load
from corestream.streams.imbalance import keep_counts, long_tail
from corestream.streams.request import Request
from corestream.streams.seeds import generator
from corestream.streams.stream import Stream

TASKS = 20
CLASS_INCREMENTAL_TASKS = 5


def split_cifar100(request: Request) -> Stream:
    """20 tasks of 5 classes with a head each; 5 tasks of 20 classes where one head learns them all."""
    return _split(request, load("cifar100", data_dir=request.data_dir, offline=request.offline))


def split_tinyimagenet(request: Request) -> Stream:
    """20 tasks of 10 classes; 5 tasks of 40 classes where one head learns them all."""
    return _split(request, load("tiny-imagenet", data_dir=request.data_dir, offline=request.offline))


def _split(request: Request, data: Dataset) -> Stream:
    request = _with_classes_per_task(request, len(data.classes))
    labels, test_labels = data.train.labels.numpy(), data.test.labels.numpy()
    kept = _kept(request, labels)
    groups = [
        Group(
            classes,
            kept[np.isin(labels[kept], classes)],
            np.flatnonzero(np.isin(test_labels, classes)),
            f"task {number}",
        )
        for number, classes in enumerate(_classes_of_tasks(request, len(data.classes)), start=1)
    ]
    return rows_stream(request, data, groups, batch_size=20)


def _with_classes_per_task(request: Request, classes: int) -> Request:
    """The request with the number it leaves open: 20 tasks, or 5 where one head learns all classes."""
    per_task = request.options["classes_per_task"]
    if per_task is None:
        per_task = classes // (CLASS_INCREMENTAL_TASKS if request.scenario == "class" else TASKS)
    if classes % per_task:
        raise ConfigError(f"classes_per_task={per_task}: {classes} classes cannot be divided so")
    return replace(request, options={**request.options, "classes_per_task": per_task})


def _classes_of_tasks(request: Request, classes: int) -> list[tuple[int, ...]]:
    """The classes of each task, in label order or shuffled by seed."""
    per_task = request.options["classes_per_task"]
    order: Sequence[int] = range(classes)
    if request.options["class_order"] == "random":
        order = generator(request.seed, request.name, "class order").permutation(classes).tolist()
    return [tuple(order[first : first + per_task]) for first in range(0, classes, per_task)]


def _kept(request: Request, labels: np.ndarray) -> np.ndarray:
    """All rows, or the long tail: n · factor^(i / (C − 1)) of the i-th class in a fixed shuffled order."""
    if not request.imbalanced:
        return np.arange(len(labels))
    classes = list(range(int(labels.max()) + 1))
    counts = long_tail(classes, int(np.bincount(labels).max()), request.options["imbalance_factor"])
    return keep_counts(labels, counts, generator(request.seed, request.name, "long tail"))
