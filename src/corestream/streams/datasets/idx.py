"""MNIST and Fashion-MNIST: four gzipped idx files (two zero bytes, a type, the rank, the sizes)."""

import gzip
import math
from pathlib import Path

import numpy as np

from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.datasets.reading import MAX_SAMPLES, Damaged, part, reading

FILES = tuple(
    f"{half}-{kind}-ubyte.gz" for half in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
FASHION = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


def read_idx(path: Path, sides: tuple[int, ...]) -> np.ndarray:
    """The bytes of an idx file whose items have the given sides: (28, 28) for images, () for labels."""
    with reading(path), gzip.open(path) as file:
        magic = bytes([0, 0, 8, 1 + len(sides)])
        if (found := file.read(4)) != magic:
            raise Damaged(path, f"begins with {found.hex()}, not with idx's {magic.hex()}")
        header = file.read(4 * (1 + len(sides)))
        if len(header) < 4 * (1 + len(sides)):
            raise Damaged(path, "ends inside its header")
        count, *found_sides = np.frombuffer(header, ">u4").tolist()
        if tuple(found_sides) != sides or count > MAX_SAMPLES:
            raise Damaged(path, f"says it holds {count} items of {found_sides}, expected {list(sides)} each")
        size = count * math.prod(sides)
        data = file.read(size + 1)
        if len(data) != size:
            raise Damaged(
                path, f"{'more' if len(data) > size else 'less'} than the {count} items it announces"
            )
        return np.frombuffer(data, np.uint8).reshape(count, *sides)


def read(root: Path, name: str, classes: tuple[str, ...]) -> Dataset:
    """`root/name/` with the four files."""

    def half(prefix: str) -> Part:
        pictures = root / name / f"{prefix}-images-idx3-ubyte.gz"
        classes = root / name / f"{prefix}-labels-idx1-ubyte.gz"
        images, labels = read_idx(pictures, (28, 28)), read_idx(classes, ())
        return part(pictures, images[:, None].copy(), labels, 10, classes)

    return Dataset(name, half("train"), half("t10k"), classes)


def read_mnist(root: Path) -> Dataset:
    return read(root, "mnist", tuple("0123456789"))


def read_fashion_mnist(root: Path) -> Dataset:
    return read(root, "fashion-mnist", FASHION)
