"""What the benchmarks share: one dataset drawn differently in every task, and the samples of some classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from corestream.errors import ConfigError, DataError
from corestream.streams.corruption import corrupt
from corestream.streams.datasets import Dataset, Part
from corestream.streams.images import Images
from corestream.streams.imbalance import keep_full
from corestream.streams.request import Request
from corestream.streams.samples import Samples, Scale, rows_of
from corestream.streams.seeds import generator
from corestream.streams.stream import Plan, Stream

UNIT = Scale()  # bytes become [0, 1]


def domain_stream(
    request: Request,
    data: Dataset,
    *,
    renders: Sequence[Callable[[Tensor], Tensor] | None],
    titles: Sequence[str],
    input_shape: tuple[int, int, int],
    scale: Scale | None,
    batch_size: int,
    drop_last: bool = False,
) -> Stream:
    """Task t shows all classes through `renders[t]`."""
    train, test = data.train, data.test
    classes = tuple(range(len(data.classes)))
    in_bytes = request.options.get("noise_style") == "bytes"

    def train_samples(task: int) -> Samples:
        rows = rows_of(_kept(request, task, train.labels.numpy(), len(classes)))
        targets = train.labels[rows]
        corruption = corrupt(
            targets,
            classes,
            noise=request.noise,
            label_noise=request.label_noise,
            key=(request.seed, request.name, task),
            in_bytes=in_bytes,
        )
        return Samples(train.shared, rows, targets, input_shape, scale, renders[task], corruption)

    def test_samples(task: int) -> Samples:
        rows = torch.arange(len(test))
        return Samples(test.shared, rows, test.labels, input_shape, scale, renders[task])

    def plan(task: int) -> Plan:
        return Plan(classes, lambda: train_samples(task), lambda: test_samples(task), titles[task])

    return Stream(
        name=request.name,
        scenario=request.scenario,
        input_shape=input_shape,
        num_classes=len(classes),
        batch_size=batch_size,
        plans=tuple(plan(task) for task in range(request.cut(len(renders)))),
        seed=request.seed,
        drop_last=drop_last,
        class_names=data.classes,
        settings=request.settings(),
        files_note=data.note,
        data=data,
    )


def class_samples(
    request: Request,
    task: int,
    classes: tuple[int, ...],
    images: Images,
    rows: Tensor,
    targets: Tensor,
    shape: tuple[int, ...],
    *,
    scale: Scale | None = UNIT,
    render: Callable[[Tensor], Tensor] | None = None,
    clean: bool = False,
) -> Samples:
    """The samples of one task of a split stream, with the task's number where each task has its own head."""
    corruption = None
    if not clean:
        key = (request.seed, request.name, task)
        corruption = corrupt(targets, classes, noise=request.noise, label_noise=request.label_noise, key=key)
    tasks = torch.full((len(rows),), task) if request.scenario == "task" else None
    return Samples(images, rows, targets, shape, scale, render, corruption, tasks)


@dataclass(frozen=True)
class Group:
    """A task as rows of a dataset."""

    classes: tuple[int, ...]
    train: np.ndarray
    test: np.ndarray
    title: str


def rows_stream(
    request: Request, data: Dataset, groups: Sequence[Group], *, batch_size: int, scale: Scale | None = UNIT
) -> Stream:
    """A stream whose tasks are rows of one dataset."""
    shape = tuple(data.train.images.shape[1:])
    groups = groups[: request.cut(len(groups))]
    if request.label_noise > 0 and all(len(group.classes) == 1 for group in groups):
        raise ConfigError(
            f"label_noise={request.label_noise}: no label can be flipped to another class of its task, for every task "
            "has one class; give tasks of two classes or more"
        )

    for task, group in enumerate(groups):
        if not len(group.train) or not len(group.test):
            half = "test" if len(group.train) else "training"
            raise DataError(
                f"{request.name}: task {task + 1} has no {half} samples of its classes {', '.join(map(str, group.classes))}; "
                "the files lack them"
            )

    def samples(task: int, part: Part, rows: np.ndarray, clean: bool) -> Samples:
        chosen = rows_of(rows)
        where = (part.shared, chosen, part.labels[chosen], shape)
        return class_samples(request, task, groups[task].classes, *where, scale=scale, clean=clean)

    def plan(task: int) -> Plan:
        group = groups[task]
        return Plan(
            group.classes,
            lambda: samples(task, data.train, group.train, clean=False),
            lambda: samples(task, data.test, group.test, clean=True),
            group.title,
        )

    return Stream(
        name=request.name,
        scenario=request.scenario,
        input_shape=shape,
        num_classes=len(data.classes),
        batch_size=batch_size,
        plans=tuple(plan(task) for task in range(len(groups))),
        seed=request.seed,
        class_names=data.classes,
        settings=request.settings(),
        files_note=data.note,
        skipped=data.skipped,
        data=data,
    )


def _kept(request: Request, task: int, labels: np.ndarray, classes: int) -> np.ndarray:
    """All rows; in the imbalanced stream all of two classes and the first 10 % of the others."""
    if not request.imbalanced:
        return np.arange(len(labels))
    if request.options.get("full_classes") == "fixed":
        return keep_full(labels, (0, classes // 2))
    drawn = generator(request.seed, request.name, task, "full classes").permutation(classes)[:2]
    return keep_full(labels, [int(label) for label in drawn])
