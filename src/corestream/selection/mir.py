"""Maximally interfered retrieval (Aljundi, Caccia, Belilovsky et al. 2019)."""

import torch
from torch import Tensor

from ..counts import check_counts


def most_interfered(before: Tensor, after: Tensor, k: int) -> Tensor:
    """The k memory samples with the largest ℓ(x; θᵛ) − ℓ(x; θ), where θᵛ is the virtual step.

    Best first; min(k, N) of them. A loss that is not finite before the step ranks last; one that the step
    makes infinite ranks first.
    """
    if before.shape != after.shape or before.ndim != 1:
        raise ValueError(
            f"before has shape {tuple(before.shape)} and after {tuple(after.shape)}; expected are [N]"
        )
    check_counts(k=k)
    rise = torch.where(before.isfinite(), after.nan_to_num(nan=torch.inf) - before, -torch.inf)
    return rise.topk(min(k, len(rise))).indices
