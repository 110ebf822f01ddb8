"""The real files: counts as published, or as the samples beside the checkout have them."""

from pathlib import Path

import pytest

from corestream.streams.datasets import SOURCES, load
from corestream.streams.datasets.verify import PUBLISHED, verify

COUNTS = {  # training, test, classes, shape, all labels equally often in training
    "mnist": (60_000, 10_000, 10, (1, 28, 28), False),
    "fashion-mnist": (60_000, 10_000, 10, (1, 28, 28), True),
    "notmnist": (18_724, 0, 10, (1, 28, 28), False),
    "cifar10": (10_000, 2_000, 10, (3, 32, 32), True),
    "cifar100": (50_000, 10_000, 100, (3, 32, 32), True),
    "svhn": (3_000, 3_000, 10, (3, 32, 32), False),
    "gtsrb": (1_720, 1_500, 43, (3, 32, 32), True),
    "tiny-imagenet": (7_000, 1_600, 200, (3, 64, 64), True),
}
COMPLETE = ("mnist", "fashion-mnist", "cifar100")


@pytest.mark.parametrize("name", COUNTS)
def test_every_dataset_is_read_with_its_counts(real_data: Path, name: str) -> None:
    data = load(name, data_dir=real_data, offline=True)
    train, test, classes, shape, even = COUNTS[name]
    assert (len(data.train), len(data.test), len(data.classes)) == (train, test, classes)
    assert tuple(data.train.images.shape[1:]) == shape
    counts = data.train.labels.bincount()
    assert len(counts) == classes
    assert bool((counts == counts[0]).all()) is even
    assert bool(data.note) is (name not in (*COMPLETE, "notmnist"))
    empty = ["A", "F"] if name == "notmnist" else []  # the published set holds two empty files
    assert [skipped.split("/")[1] for skipped in data.skipped] == empty


def test_mnist_is_what_everybody_knows(real_data: Path) -> None:
    data = load("mnist", data_dir=real_data, offline=True)
    assert data.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert round(float(data.train.images.float().mean() / 255), 4) == 0.1307


@pytest.mark.parametrize("name", COMPLETE)
def test_the_publishers_own_bytes_are_recognised(real_data: Path, name: str) -> None:
    assert {verdict.state for verdict in verify(SOURCES[name], real_data)} == {PUBLISHED}
