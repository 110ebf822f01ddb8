"""Picks and scores of every step, on request: .npy files that grow, cut back to the checkpoint on resume."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corestream.errors import RunError
from corestream.studies.files import write_atomically

Array = np.ndarray[Any, Any]


class GrowingArray:
    """Rows appended to a .npy file; all are filled up to the width of the widest."""

    def __init__(self, path: Path, fill: float) -> None:
        self.path = path
        self.rows = 0
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
            with open(self.path, "rb+" if self.path.exists() else "wb+") as file:
                self._write_header(file, self.rows + len(rows), shape, kind)
                file.seek(0, 2)
                file.write(block.tobytes())
            self.rows += len(rows)
            self._waiting.clear()
        return self.rows

    def cut(self, rows: int) -> None:
        """Forget every row after the first `rows`: they were written after the checkpoint."""
        self.rows = rows
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
        file.write(wide.tobytes())
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

    def cut(self, rows: dict[str, int]) -> None:
        for name, array in self._arrays.items():
            array.cut(rows.get(name, 0))


def _score_rows(scores: Any, batch_size: int) -> Tensor:
    if scores is None:
        return torch.full((batch_size, 4), torch.nan)
    return torch.stack([scores.similarity, scores.diversity, scores.affinity, scores.total], dim=1).float()
