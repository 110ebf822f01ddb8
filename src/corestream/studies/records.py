"""Picks and scores of every step, on request: .npy files that grow, cut back to the checkpoint on resume."""

import io
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corestream.errors import RunError
from corestream.studies.files import sync_folder, write_atomically

Array = np.ndarray[Any, Any]


class GrowingArray:
    """Rows appended to a .npy file; all are filled up to the width of the widest."""

    def __init__(self, path: Path, fill: float) -> None:
        self.path = path
        self.rows = 0
        self._crc = 0  # of the rows, as they are stored
        self._fill = fill
        self._waiting: list[Tensor] = []

    def append(self, row: Tensor) -> None:
        """Kept where it is until `flush`, so that a device never waits for it."""
        self._waiting.append(row.detach().clone())

    def flush(self) -> int:
        """Write the waiting rows, and how many there are now into the header; returns that number."""
        if self._waiting:
            rows = [row.cpu().numpy() for row in self._waiting]
            shape, kind = self._make_wide_enough(rows)
            block = np.full((len(rows), *shape), self._fill, kind)
            for place, row in zip(block, rows, strict=True):
                place[: len(row)] = row
            is_new, content = not self.path.exists(), block.tobytes()
            with open(self.path, "wb+" if is_new else "rb+") as file:
                self._write_header(file, self.rows + len(rows), shape, kind)
                file.seek(0, 2)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync_folder(self.path.parent)
            self.rows += len(rows)
            self._crc = zlib.crc32(content, self._crc)
            self._waiting.clear()
        return self.rows

    @property
    def checksum(self) -> dict[str, int]:
        """Of all rows, with the width that they have now: they may be widened later."""
        return {"width": self._stored()[0][0] if self.rows else 0, "crc": self._crc}

    def check(self, rows: int, checksum: dict[str, int]) -> None:
        """A ValueError unless the first rows are those that had this checksum."""
        if rows == 0:
            return
        try:
            stored = np.load(self.path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise ValueError(f"needs {self.path.name}, which cannot be read ({error})") from error
        if len(stored) < rows:
            raise ValueError(f"needs {rows} rows of {self.path.name}, which has {len(stored)}")
        if zlib.crc32(stored[:rows, : checksum["width"]].tobytes()) != checksum["crc"]:
            raise ValueError(f"has other rows than {self.path.name} (their checksum differs)")

    def cut(self, rows: int) -> None:
        """Forget every row after the first `rows`: they were written after the checkpoint."""
        self.rows, self._crc = rows, 0
        if rows == 0:
            self.path.unlink(missing_ok=True)
            return
        try:
            shape, kind = self._stored()
            with open(self.path, "rb+") as file:
                header = self._write_header(file, rows, shape, kind)
                end = header + rows * int(np.prod(shape)) * kind.itemsize
                if file.seek(0, 2) < end:
                    raise ValueError(f"it holds fewer than {rows} rows")
                file.truncate(end)
                file.seek(header)
                self._crc = zlib.crc32(file.read())
        except (OSError, ValueError) as error:
            raise RunError(
                f"{self.path} does not fit the checkpoint: {error}; remove the run's folder"
            ) from error

    def _make_wide_enough(self, rows: list[Array]) -> tuple[tuple[int, ...], "np.dtype[Any]"]:
        """The shape and kind of all rows; the stored ones are written anew where a waiting one is wider."""
        width, kind = max(len(row) for row in rows), rows[0].dtype
        if self.rows:
            (stored, *_), kind = self._stored()
            if stored < width:
                self._widen(width)
            width = max(width, stored)
        return (width, *rows[0].shape[1:]), kind

    def _widen(self, width: int) -> None:
        narrow = np.load(self.path)
        wide = np.full((len(narrow), width, *narrow.shape[2:]), self._fill, narrow.dtype)
        wide[:, : narrow.shape[1]] = narrow
        file = io.BytesIO()
        self._write_header(file, len(wide), wide.shape[1:], wide.dtype)
        content = wide.tobytes()
        file.write(content)
        self._crc = zlib.crc32(content)
        write_atomically(self.path, file.getvalue())

    def _stored(self) -> tuple[tuple[int, ...], "np.dtype[Any]"]:
        with open(self.path, "rb") as file:
            np.lib.format.read_magic(file)
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
        return shape[1:], kind

    @staticmethod
    def _write_header(file: Any, rows: int, shape: tuple[int, ...], kind: "np.dtype[Any]") -> int:
        # NumPy pads the header for a growing first axis, so it never changes its length
        file.seek(0)
        description = {"descr": kind.str, "fortran_order": False, "shape": (rows, *shape)}
        np.lib.format.write_array_header_1_0(file, description)
        return int(file.tell())


class Records:
    """picks.npy: the picked samples' places in their task's training set, best first, −1 for none.

    scores.npy: similarity, diversity, affinity and total of each sample of the batch, NaN without a score.
    """

    def __init__(self, folder: Path, wanted: tuple[str, ...]) -> None:
        self._arrays: dict[str, GrowingArray] = {}
        if "picks" in wanted:
            self._arrays["picks"] = GrowingArray(folder / "picks.npy", fill=-1)
        if "scores" in wanted:
            self._arrays["scores"] = GrowingArray(folder / "scores.npy", fill=float("nan"))

    def add(self, picked: Tensor, scores: Any, batch_size: int) -> None:
        if "picks" in self._arrays:
            self._arrays["picks"].append(picked)
        if "scores" in self._arrays:
            self._arrays["scores"].append(_score_rows(scores, batch_size))

    def flush(self) -> dict[str, int]:
        return {name: array.flush() for name, array in self._arrays.items()}

    def checksums(self) -> dict[str, dict[str, int]]:
        return {name: array.checksum for name, array in self._arrays.items()}

    def check(self, rows: dict[str, int], checksums: dict[str, dict[str, int]]) -> None:
        """A ValueError where a file is not what it was at a checkpoint."""
        for name, array in self._arrays.items():
            if name in checksums:
                array.check(rows.get(name, 0), checksums[name])

    def cut(self, rows: dict[str, int]) -> None:
        for name, array in self._arrays.items():
            array.cut(rows.get(name, 0))


def _score_rows(scores: Any, batch_size: int) -> Tensor:
    if scores is None:
        return torch.full((batch_size, 4), torch.nan)
    return torch.stack([scores.similarity, scores.diversity, scores.affinity, scores.total], dim=1).float()
