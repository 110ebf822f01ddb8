"""Herding: the exemplars of iCaRL (Rebuffi et al. 2017, Algorithm 4)."""

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from ..devices import wide
from .matching import match_mean


def herding(features: Tensor, k: int) -> Tensor:
    """p_j = argmin_x ‖ μ − (φ(x) + Σ_{i<j} φ(p_i)) / j ‖ over the normalised features φ, best first."""
    if features.ndim != 2:
        raise ValueError(f"features has shape {tuple(features.shape)}; expected is [N, D]")
    unit = normalize(wide(features), dim=1)
    return match_mean(unit @ unit.T, k).to(features.device)


def herding_per_class(features: Tensor, targets: Tensor, k: int) -> Tensor:
    """Herding within each class, then the first of every class, the second of every class, …: min(k, N) of them."""
    turns = []
    for label in targets.unique():
        own = (targets == label).nonzero()[:, 0]
        picked = herding(features[own], k)
        turns.append(pad(torch.where(picked >= 0, own[picked], -1), (0, k - len(picked)), value=-1))
    found = torch.stack(turns, dim=1).flatten()
    found = found[found >= 0][:k]
    return pad(found, (0, min(k, len(targets)) - len(found)), value=-1)
