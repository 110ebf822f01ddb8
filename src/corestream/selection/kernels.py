"""Kernels for the bilevel selector."""

from __future__ import annotations

import torch
from torch import Tensor


def rbf(features: Tensor, width: float | None = None) -> Tensor:
    """exp(−‖x_i − x_j‖² / (2 width²)); without a width the median distance between two samples is it."""
    features = features.flatten(1).double()
    distances = torch.cdist(features, features)
    if width is None:
        rows, columns = torch.triu_indices(len(features), len(features), offset=1)
        apart = distances[rows, columns]
        scale = apart.median() if len(apart) else distances.new_ones(())
        scale = torch.where(scale > 0, scale, 1.0)
    else:
        scale = distances.new_tensor(width)
    return torch.exp(-(distances**2) / (2 * scale**2))
