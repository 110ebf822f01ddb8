"""CIFAR-10 and CIFAR-100: the publisher's Python pickles, images as rows of 3 × 32 × 32 bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.datasets.reading import Damaged, part, read_capped, reading
from corestream.streams.datasets.unpickle import load

FILES_10 = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
FILES_100 = ("train", "test", "meta")
MAX_BYTES = 1 << 29


def read_cifar10(root: Path) -> Dataset:
    folder = root / "cifar-10-batches-py"
    paths = [folder / name for name in FILES_10]
    batches = [_part(path, b"labels", 10) for path in paths[:5]]
    train = Part(
        torch.cat([batch.images for batch in batches]), torch.cat([batch.labels for batch in batches])
    )
    test = _part(paths[5], b"labels", 10)
    return Dataset("cifar10", train, test, _class_names(paths[6], b"label_names", 10))


def read_cifar100(root: Path) -> Dataset:
    folder = root / "cifar-100-python"
    return Dataset(
        "cifar100",
        _part(folder / "train", b"fine_labels", 100),
        _part(folder / "test", b"fine_labels", 100),
        _class_names(folder / "meta", b"fine_label_names", 100),
    )


def _content(path: Path) -> dict[bytes, Any]:
    with reading(path):
        return load(read_capped(path, MAX_BYTES))


def _part(path: Path, key: bytes, classes: int) -> Part:
    content = _content(path)
    images, labels = content.get(b"data"), content.get(key)
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3072:
        raise Damaged(path, "its 'data' is not an array of rows of 3,072 bytes")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise Damaged(path, f"its {key.decode()!r} is not a list of whole numbers")
    return part(path, images.reshape(-1, 3, 32, 32).copy(), np.asarray(labels, dtype=np.int64), classes)


def _class_names(path: Path, key: bytes, count: int) -> tuple[str, ...]:
    names = _content(path).get(key)
    if (
        not isinstance(names, list)
        or len(names) != count
        or not all(isinstance(name, bytes) for name in names)
    ):
        raise Damaged(path, f"its {key.decode()!r} is not a list of {count} names")
    return tuple(name.decode("utf-8", "replace") for name in names)
