"""How a domain-incremental benchmark is put together: one dataset, drawn differently in every task."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from corestream.streams.corruption import corrupt
from corestream.streams.datasets.dataset import Part
from corestream.streams.imbalance import keep_full
from corestream.streams.request import Request
from corestream.streams.samples import Images, Samples, Scale, rows_of
from corestream.streams.seeds import generator
from corestream.streams.stream import Plan, Stream

FIXED_FULL_CLASSES = (0, 5)


def domain_stream(
    request: Request,
    train: Part,
    test: Part,
    *,
    renders: Sequence[Callable[[Tensor], Tensor] | None],
    titles: Sequence[str],
    input_shape: tuple[int, int, int],
    scale: Scale | None,
    batch_size: int,
    drop_last: bool = False,
    files_note: str = "",
) -> Stream:
    """Task t shows all classes through `renders[t]`."""
    classes = tuple(range(10))
    train_images, test_images = Images(train.images), Images(test.images)
    in_bytes = request.options.get("noise_style") == "bytes"

    def train_samples(task: int) -> Samples:
        rows = rows_of(_kept(request, task, train.labels.numpy()))
        targets = train.labels[rows]
        corruption = corrupt(
            targets,
            classes,
            noise=request.noise,
            label_noise=request.label_noise,
            key=(request.seed, request.name, task),
            in_bytes=in_bytes,
        )
        return Samples(train_images, rows, targets, input_shape, scale, renders[task], corruption)

    def test_samples(task: int) -> Samples:
        rows = torch.arange(len(test))
        return Samples(test_images, rows, test.labels, input_shape, scale, renders[task])

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
        class_names=tuple(str(label) for label in classes),
        settings=request.settings(),
        files_note=files_note,
    )


def _kept(request: Request, task: int, labels: np.ndarray) -> np.ndarray:
    """All rows; in the imbalanced stream all of two classes and the first 10 % of the others."""
    if not request.imbalanced:
        return np.arange(len(labels))
    if request.options["full_classes"] == "fixed":
        return keep_full(labels, FIXED_FULL_CLASSES)
    drawn = generator(request.seed, request.name, task, "full classes").permutation(10)[:2]
    return keep_full(labels, [int(label) for label in drawn])
