"""GTSRB: three zips of PPM images; semicolon tables give each image's class and the region of the sign."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from corestream.streams.datasets.archives import Zip, open_zip
from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.datasets.reading import Damaged, decode, stack

FILES = ("GTSRB-Training_fixed.zip", "GTSRB_Final_Test_Images.zip", "GTSRB_Final_Test_GT.zip")
CLASSES = 43
Row = tuple[str, tuple[int, int, int, int], int]
COLUMNS = ("Filename", "Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2", "ClassId")


def read_gtsrb(root: Path) -> Dataset:
    """Signs cut out by their region and resized to 32 × 32."""
    training, images, truth = (root / "gtsrb" / name for name in FILES)
    with open_zip(training) as file:
        tables = sorted(name for name in file.names if name.endswith(".csv"))
        train = _part(
            file, [(table.rpartition("/")[0], row) for table in tables for row in _rows(file, table)]
        )
    with open_zip(truth) as file:
        rows = [row for name in file.names if name.endswith(".csv") for row in _rows(file, name)]
    with open_zip(images) as file:
        folder = next((name.rpartition("/")[0] for name in file.names if name.endswith(".ppm")), "")
        test = _part(file, [(folder, row) for row in rows])
    return Dataset("gtsrb", train, test, tuple(f"sign {i}" for i in range(CLASSES)))


def _rows(file: Zip, table: str) -> Iterator[Row]:
    """Name, region (its end exclusive) and class of each line of a table."""
    lines = csv.DictReader(io.StringIO(file.read(table).decode("ascii")), delimiter=";", strict=True)
    for number, line in enumerate(lines, start=2):
        try:
            name, *numbers = (line[column] for column in COLUMNS)
            x1, y1, x2, y2, label = (int(text) for text in numbers)
        except (KeyError, TypeError, ValueError):
            raise Damaged(file.path, f"line {number} of {table} is not {';'.join(COLUMNS)}") from None
        yield name, (x1, y1, x2 + 1, y2 + 1), label


def _part(file: Zip, rows: list[tuple[str, Row]]) -> Part:
    def picture(folder: str, name: str, region: tuple[int, int, int, int]) -> np.ndarray:
        member = f"{folder}/{name}" if folder else name
        return decode(file.read(member), "PPM", "RGB", box=region, size=(32, 32))

    pictures = (picture(folder, name, region) for folder, (name, region, _) in rows)
    return stack(file.path, pictures, [label for _, (_, _, label) in rows], CLASSES)
