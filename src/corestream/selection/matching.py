"""Greedy mean matching: the picks whose running mean stays closest to the mean of all. Herding and gradient
matching are this rule on embeddings and on gradients."""

import torch
from torch import Tensor

from ..counts import check_counts


def match_mean(gram: Tensor, k: int) -> Tensor:
    """For j = 1..k the n that minimises ‖ v̄ − (v_n + Σ_{p picked} v_p) / j ‖², from the Gram matrix.

    Returns min(k, N) indices, best first. A sample whose row is not finite is never picked and does not
    enter the mean; with fewer finite samples than k the remaining places are −1.
    """
    check_gram(gram, k)
    finite = gram.diagonal().isfinite()
    gram = torch.where(finite[:, None] & finite[None, :], gram, 0.0)
    squares = gram.diagonal()
    to_mean = gram.sum(1) / finite.sum().clamp(min=1)
    to_picked = torch.zeros_like(squares)
    free = finite.clone()
    picked = []
    for j in range(1, min(k, len(gram)) + 1):
        # ‖v̄ − (v_n + s)/j‖² without the terms that all n share
        distance = (squares + 2 * to_picked) / j**2 - 2 * to_mean / j
        best = distance.masked_fill(~free, torch.inf).argmin()
        picked.append(torch.where(free.any(), best, -1))
        to_picked = to_picked + gram.index_select(0, best[None])[0]
        free = free.scatter(0, best[None], False)
    return torch.stack(picked)


def check_gram(gram: Tensor, k: int) -> None:
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or len(gram) == 0:
        raise ValueError(f"gram has shape {tuple(gram.shape)}; expected is [N, N] with N ≥ 1")
    check_counts(k=k)
