"""CIFAR-10 and CIFAR-100: the publisher's Python pickles, images as rows of 3 × 32 × 32 bytes."""

from pathlib import Path
from typing import Any

import numpy as np

from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.datasets.reading import damaged, part, read_capped, reading
from corestream.streams.datasets.unpickle import load

FILES_10 = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
FILES_100 = ("train", "test", "meta")
MAX_BYTES = 1 << 29


def read_cifar10(root: Path) -> Dataset:
    folder = root / "cifar-10-batches-py"
    paths = [folder / name for name in FILES_10]
    batches = [_images_and_labels(path, b"labels") for path in paths[:5]]
    images, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    train = part(folder, images, labels, classes=10)
    test = part(paths[5], *_images_and_labels(paths[5], b"labels"), classes=10)
    return Dataset("cifar10", train, test, _class_names(paths[6], b"label_names", 10))


def read_cifar100(root: Path) -> Dataset:
    folder = root / "cifar-100-python"
    return Dataset(
        "cifar100",
        _half(folder / "train"),
        _half(folder / "test"),
        _class_names(folder / "meta", b"fine_label_names", 100),
    )


def _half(path: Path) -> Part:
    return part(path, *_images_and_labels(path, b"fine_labels"), classes=100)


def _content(path: Path) -> dict[bytes, Any]:
    with reading(path):
        return load(read_capped(path, MAX_BYTES))


def _images_and_labels(path: Path, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    content = _content(path)
    images, labels = content.get(b"data"), content.get(key)
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3072:
        raise damaged(path, "its 'data' is not an array of rows of 3,072 bytes")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise damaged(path, f"its {key.decode()!r} is not a list of whole numbers")
    if len(images) != len(labels):
        raise damaged(path, f"{len(images)} images but {len(labels)} labels")
    return images.reshape(-1, 3, 32, 32).copy(), np.asarray(labels, dtype=np.int64)


def _class_names(path: Path, key: bytes, count: int) -> tuple[str, ...]:
    names = _content(path).get(key)
    if (
        not isinstance(names, list)
        or len(names) != count
        or not all(isinstance(name, bytes) for name in names)
    ):
        raise damaged(path, f"its {key.decode()!r} is not a list of {count} names")
    return tuple(name.decode("utf-8", "replace") for name in names)
