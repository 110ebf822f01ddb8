"""What every reader shares: files come from strangers, so sizes are capped and failures name the file."""

import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import torch
from PIL import Image

from corestream.errors import CorestreamError, DataError
from corestream.streams.datasets.dataset import Part

MAX_SIDE = 4096
MAX_SAMPLES = 200_000  # the largest published set has 100,000


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever a damaged file makes a reader raise becomes one error that says the file is damaged."""
    try:
        yield
    except CorestreamError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except PermissionError as error:
        raise DataError(f"{path}: not readable ({error.strerror})") from error
    except Exception as error:  # parsers raise anything on damaged input; the cause stays attached
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise Damaged(path, reason) from error


class Damaged(DataError):
    """A file that is there but cannot be what its name says; `path` is the file."""

    def __init__(self, path: Path, reason: str) -> None:
        advice = "Delete it and fetch it again, or put a whole one in its place."
        super().__init__(f"{path}: damaged ({reason}). {advice}")
        self.path = path
        self.reason = reason


class Capped(io.RawIOBase):
    """A stream that ends in an error after `limit` bytes: a small archive cannot unpack without end."""

    def __init__(self, inner: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self._inner = inner
        self._left = limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        data = self._inner.read(wanted)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("unpacks to more than a dataset of this name can hold")
        return data


def read_capped(path: Path, limit: int) -> bytes:
    if path.stat().st_size > limit:
        raise Damaged(path, f"larger than {limit:,} bytes")
    return path.read_bytes()


def decode(
    data: bytes,
    format: str,
    mode: str,
    *,
    box: tuple[int, int, int, int] | None = None,
    size: tuple[int, int] | None = None,
) -> np.ndarray:
    """One image [H, W] or [H, W, 3] as bytes: cut to `box` (x1, y1, x2, y2), resized to (width, height)."""
    with Image.open(io.BytesIO(data), formats=(format,)) as image:
        if max(image.size) > MAX_SIDE:
            raise ValueError(f"an image of {image.width} × {image.height} pixels")
        if box is not None and not (
            0 <= box[0] < box[2] <= image.width and 0 <= box[1] < box[3] <= image.height
        ):
            raise ValueError(f"region {box} outside an image of {image.width} × {image.height} pixels")
        picture = image.convert(mode) if box is None else image.convert(mode).crop(box)
        if size is not None and picture.size != size:
            picture = picture.resize(size, Image.Resampling.BILINEAR)
        return np.asarray(picture)


def part(
    path: Path, images: np.ndarray, labels: np.ndarray, classes: int, labels_path: Path | None = None
) -> Part:
    """Images [n, C, H, W] and labels as tensors, once they agree; both from one file where the labels have none of their own."""
    if len(images) != len(labels):
        raise Damaged(path, f"{len(images)} images but {len(labels)} labels")
    if len(labels) == 0:
        raise Damaged(path, "no images")
    if labels.min() < 0 or labels.max() >= classes:
        raise Damaged(
            labels_path or path, f"labels from {labels.min()} to {labels.max()}, expected 0 to {classes - 1}"
        )
    return Part(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels.astype(np.int64)))


def stack(path: Path, pictures: Iterable[np.ndarray], labels: Sequence[int], classes: int) -> Part:
    """Pictures of one size, channels last or absent, one for each label, as a part; only one more is held at a time."""
    if not 0 < len(labels) <= MAX_SAMPLES:
        raise Damaged(path, f"lists {len(labels)} images, expected 1 to {MAX_SAMPLES:,}")
    images = np.empty(0, np.uint8)
    for number, picture in enumerate(pictures):
        channels_first = picture[None] if picture.ndim == 2 else picture.transpose(2, 0, 1)
        if number == 0:
            images = np.empty((len(labels), *channels_first.shape), np.uint8)
        images[number] = channels_first
    return part(path, images, np.asarray(labels), classes)
