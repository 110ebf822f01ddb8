"""Herding: the exemplars of iCaRL (Rebuffi et al. 2017, Algorithm 4)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from corestream.selection.matching import match_mean


def herding(features: Tensor, k: int) -> Tensor:
    """p_j = argmin_x ‖ μ − (φ(x) + Σ_{i<j} φ(p_i)) / j ‖ over the normalised features φ, best first."""
    if features.ndim != 2:
        raise ValueError(f"features has shape {tuple(features.shape)}; expected is [N, D]")
    unit = normalize(features.double(), dim=1)
    return match_mean(unit @ unit.T, k)
