"""Where the samples lie in a layer's tensors: first, second, or folded into the first dimension.

A layer sees [N, …] in most models, but [T, N, …] in a sequence-first transformer and [N·T, …] where time is folded away. The right
reading is found by a probe: with the losses weighted, each sample's output gradient must be its old one times its weight. A layer
that passes in no reading has samples that depend on each other, or are not there to be told apart, and takes the general path.
"""

from collections.abc import Iterator, Sequence
from enum import Enum

import torch
from torch import Tensor


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
    first, second = leading > 0 and shape[0] == count, leading > 1 and shape[1] == count
    return leading, first, second, leading > 0 and shape[0] % count == 0, count == 1


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
    steps = torch.arange(len(losses), device=losses.device, dtype=torch.float64)
    return (1 + (steps * 0.6180339887498949) % 1).to(losses.dtype)


def tolerance(gradients: Sequence[Tensor]) -> float:
    """How far rounding alone may move a weighted gradient: far below what a mixed-up pair of samples shows."""
    if any(gradient.dtype in (torch.bfloat16, torch.float16) for gradient in gradients):
        return 3e-2
    if any(gradient.is_cuda for gradient in gradients):
        return 5e-3  # TF32
    return 1e-11 if all(gradient.dtype == torch.float64 for gradient in gradients) else 2e-5


def fits(layout: Layout, plain: Tensor, weighted: Tensor, weights: Tensor, event: int, tol: float) -> bool:
    """Whether `weighted` is `plain` with each sample times its weight, when read in this layout."""
    plain, weighted = (layout.samples(x, len(weights), event).flatten(1).double() for x in (plain, weighted))
    expected = plain * weights.double()[:, None]
    good = torch.isfinite(expected) & torch.isfinite(weighted)
    error = torch.where(good, expected - weighted, 0).abs().max()
    return bool(error <= tol * torch.where(good, expected, 0).abs().max())
