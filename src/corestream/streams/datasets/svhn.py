"""SVHN, cropped digits: two MATLAB files, X [32, 32, 3, n] and y [n, 1], where label 10 is the digit 0."""

from pathlib import Path

import numpy as np

from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.datasets.matfile import arrays
from corestream.streams.datasets.reading import Damaged, part, read_capped, reading

FILES = ("train_32x32.mat", "test_32x32.mat")
MAX_BYTES = 1 << 29


def read_svhn(root: Path) -> Dataset:
    train, test = (_half(root / "svhn" / name) for name in FILES)
    return Dataset("svhn", train, test, tuple("0123456789"))


def _half(path: Path) -> Part:
    with reading(path):
        found = arrays(read_capped(path, MAX_BYTES))
        images, labels = found.get("X"), found.get("y")
        if images is None or labels is None:
            raise Damaged(path, f"holds {', '.join(found) or 'no arrays'}; expected X and y")
        if images.ndim != 4 or images.shape[:3] != (32, 32, 3) or images.dtype != np.uint8:
            raise Damaged(path, f"X is {images.dtype} of shape {images.shape}; expected bytes [32, 32, 3, n]")
        digits = labels.reshape(-1)
        if not np.isin(digits, range(1, 11)).all():
            raise Damaged(path, "y has labels outside 1 to 10")
        return part(path, images.transpose(3, 2, 0, 1), digits.astype(np.int64) % 10, 10)
