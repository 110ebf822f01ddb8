"""Where the samples lie in a layer's tensors: first, second, or folded into the first dimension.

A layer sees [N, …] in most models, but [T, N, …] in a sequence-first transformer and [N·T, …] where time is folded away. The right
reading is found by a probe: with the losses weighted, each sample's output gradient must be its old one times its weight. A layer
that passes in no reading has samples that depend on each other, or are not there to be told apart, and takes the general path.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from ..devices import wide
from .blocks.block import slices

PROBE_BYTES = 2**20  # bytes of gradients looked at in double precision


class Layout(Enum):
    FIRST = "first"
    SECOND = "second"
    FOLDED = "folded"  # [N·T, …], sample by sample
    FOLDED_BY_TIME = "folded by time"  # [T·N, …], step by step

    def samples(self, x: Tensor, count: int, event: int) -> Tensor:
        """`x` as [N, T, *event], with all positions of a sample in T."""
        if self is Layout.SECOND:
            x = x.transpose(0, 1)
        elif self is Layout.FOLDED:
            x = x.unflatten(0, (count, -1))
        elif self is Layout.FOLDED_BY_TIME:
            x = x.unflatten(0, (-1, count)).transpose(0, 1)
        leading = x.dim() - event
        return x.unsqueeze(1) if leading == 1 else x.flatten(1, leading - 1)


Pattern = tuple[int, bool, bool, bool, bool]


def pattern(shape: torch.Size, event: int, count: int) -> Pattern:
    """All that the possible layouts depend on."""
    leading = len(shape) - event
    some = leading > 0 and shape[0] > 0  # an expert may have got no sample at all
    first, second = some and shape[0] == count, some and leading > 1 and shape[1] == count
    folded = some and shape[0] % count == 0
    return leading, first, second, folded, count == 1


def candidates(found: Pattern) -> Iterator[Layout]:
    _, first, second, folded, _ = found
    if first:
        yield Layout.FIRST
    if second:
        yield Layout.SECOND
    if folded and not first:
        yield Layout.FOLDED
        yield Layout.FOLDED_BY_TIME


def probe_weights(losses: Tensor) -> Tensor:
    """Weights in [1, 2), no two alike, drawn from no generator."""
    steps = torch.arange(len(losses), dtype=torch.float64)
    return (1 + (steps * 0.6180339887498949) % 1).to(losses)


@dataclass(frozen=True)
class Fingerprint:
    """Enough of each sample's gradient to tell, without keeping it, whether another one is that times a weight."""

    squares: Tensor  # [N] the squared length
    signed: Tensor  # [N] the sum with signs that follow no pattern
    tolerance: float  # how far rounding alone may move it: far below what a mixed-up pair of samples shows
    least: float  # shorter gradients may be of numbers so small that they are rounded further

    @classmethod
    def of(cls, samples: Tensor) -> "Fingerprint":
        rows = samples.flatten(1)
        places = wide(torch.arange(rows.shape[1], device=rows.device))
        signs = torch.where((places * 0.6180339887498949) % 1 < 0.5, 1.0, -1.0).double()
        squares, signed = [], []
        for part in slices(len(rows), rows.shape[1] * 8, PROBE_BYTES):
            some = wide(rows[part])
            squares.append(some.square().sum(1))
            signed.append(some @ signs)
        tol = tolerance(rows.dtype, rows.device)
        return cls(torch.cat(squares), torch.cat(signed), tol, torch.finfo(rows.dtype).tiny / tol)

    def any(self) -> bool:
        return bool((self.squares > 0).any())

    def is_faint(self) -> bool:
        """Whether there is a gradient, and none that can be relied upon: a batch that is learned very well has such."""
        return 0 < float(self.squares.nan_to_num(torch.inf).max()) < self.least**2

    def fits(self, weighted: "Fingerprint", weights: Tensor, tol: float) -> bool:
        """Whether the other is this with each sample times its weight."""
        scale = wide(weights)
        good = torch.isfinite(self.squares) & torch.isfinite(weighted.squares)
        lengths = torch.where(good, self.squares, 0).sqrt() * scale
        stretch = lengths - torch.where(good, weighted.squares, 0).sqrt()
        turn = torch.where(good, self.signed * scale - weighted.signed, 0)
        return bool(torch.maximum(stretch.abs().max(), turn.abs().max()) <= tol * lengths.max())


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    if dtype in (torch.bfloat16, torch.float16):
        return 3e-2
    if dtype == torch.float64:
        return 1e-11
    return 2e-5 if device.type == "cpu" else 5e-3  # TF32
