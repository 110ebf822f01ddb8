"""notMNIST small: a tar of 28 × 28 PNGs in the folders A to J. Two of the published files are empty."""

from pathlib import Path

import numpy as np
import torch

from corestream.streams.datasets.archives import tar_members
from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.datasets.reading import Damaged, decode, reading, stack

FILES = ("notMNIST_small.tar.gz",)
LETTERS = "ABCDEFGHIJ"
MAX_UNPACKED = 1 << 28


def read_notmnist(root: Path) -> Dataset:
    """All images as `train`, sorted by name; the set has no test part, so whoever uses it splits it."""
    path = root / "notmnist" / FILES[0]
    found: dict[str, tuple[np.ndarray, int]] = {}
    skipped = []
    for name, data in tar_members(path, MAX_UNPACKED):
        if name.suffix != ".png":
            continue
        if len(name.parts) < 2 or name.parts[-2] not in LETTERS:
            raise Damaged(path, f"its member {str(name)!r} is in none of the folders A to J")
        if not data:
            skipped.append(str(name))
            continue
        with reading(path):
            picture = decode(data, "PNG", "L")
            if picture.shape != (28, 28):
                raise ValueError(f"{name} is not 28 × 28")
        found[str(name)] = picture, LETTERS.index(name.parts[-2])
    ordered = [found[name] for name in sorted(found)]
    train = stack(path, [picture for picture, _ in ordered], [label for _, label in ordered], 10)
    nothing = Part(torch.empty((0, 1, 28, 28), dtype=torch.uint8), torch.empty(0, dtype=torch.int64))
    return Dataset("notmnist", train, nothing, tuple(LETTERS), skipped=tuple(sorted(skipped)))
