"""Multiple Datasets: five datasets one after the other, 83 classes, all as 32 × 32 colour images."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corestream.streams.benchmarks.recipe import class_samples
from corestream.streams.datasets import Dataset, load
from corestream.streams.imbalance import keep_counts, long_tail
from corestream.streams.request import Request
from corestream.streams.samples import Samples, Scale, rows_of
from corestream.streams.seeds import generator
from corestream.streams.stream import Plan, Stream

TRAIN_SAMPLES = 1000
LARGEST_CLASS = 100
# Mean and standard deviation of each dataset's pixels at 32 × 32, grey images with their frame of zeros.
DATASETS = {
    "mnist": ((0.1,), (0.2752,)),
    "fashion-mnist": ((0.2190,), (0.3318,)),
    "notmnist": ((0.3257,), (0.4399,)),
    "gtsrb": ((0.3398, 0.3117, 0.3210), (0.2755, 0.2647, 0.2712)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
}
LONG_TAILED = ("mnist", "fashion-mnist", "notmnist", "svhn")
SHAPE = (3, 32, 32)


def multi_datasets(request: Request) -> Stream:
    """1,000 training images of each dataset by seed; labels go on counting from one dataset to the next."""
    count = request.cut(len(DATASETS))
    read = [load(name, data_dir=request.data_dir, offline=request.offline) for name in list(DATASETS)[:count]]
    data = [_with_test(request, dataset) for dataset in read]
    sizes = [10, 10, 10, 43, 10]
    firsts = [sum(sizes[:task]) for task in range(count)]
    plans = tuple(_plan(request, task, data[task], firsts[task]) for task in range(count))
    return Stream(
        name=request.name,
        scenario=request.scenario,
        input_shape=SHAPE,
        num_classes=sum(sizes),
        batch_size=20,
        plans=plans,
        seed=request.seed,
        class_names=tuple(f"{part.name}: {label}" for part in data for label in part.classes),
        settings=request.settings(),
        files_note="; ".join(part.note for part in data if part.note),
        skipped=tuple(name for part in data for name in part.skipped),
        data=read,
    )


def _plan(request: Request, task: int, data: Dataset, first: int) -> Plan:
    classes = tuple(range(first, first + len(data.classes)))
    mean, std = DATASETS[data.name]
    scale = Scale(255.0, mean, std)
    samples = partial(class_samples, request, task, classes, shape=SHAPE, scale=scale, render=_as_colour_32)

    def train() -> Samples:
        rows = rows_of(_chosen(request, data))
        return samples(data.train.shared, rows, data.train.labels[rows] + first)

    def test() -> Samples:
        return samples(data.test.shared, torch.arange(len(data.test)), data.test.labels + first, clean=True)

    return Plan(classes, train, test, data.name)


def _chosen(request: Request, data: Dataset) -> np.ndarray:
    """1,000 rows by seed; imbalanced, 100 · factor^(i / 39) of the i-th class of the four ten-class sets."""
    random = generator(request.seed, request.name, data.name, "training images")
    if request.imbalanced and data.name in LONG_TAILED:
        counts = long_tail(list(range(40)), LARGEST_CLASS, request.options["imbalance_factor"])
        first = 10 * LONG_TAILED.index(data.name)
        own = {label: counts[first + label] for label in range(10)}
        return keep_counts(data.train.labels.numpy(), own, random)
    return np.sort(random.permutation(len(data.train))[:TRAIN_SAMPLES])


def _with_test(request: Request, data: Dataset) -> Dataset:
    """The dataset; notMNIST, published in one piece, split 80 / 20 by seed."""
    if len(data.test):
        return data
    random = generator(request.seed, request.name, data.name, "split")
    order = torch.from_numpy(random.permutation(len(data.train)))
    train, test = torch.split(order, [cut := round(0.8 * len(order)), len(order) - cut])
    return data.divided(train.sort().values, test.sort().values)


def _as_colour_32(images: Tensor) -> Tensor:
    """Grey 28 × 28 images framed by zeros and repeated in three channels; colour ones as they are."""
    if images.shape[1:] == SHAPE:
        return images
    return F.pad(images, (2, 2, 2, 2)).expand(-1, 3, -1, -1).contiguous()
