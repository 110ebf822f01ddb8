"""Kernels for the bilevel selector."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..gradients import per_sample_gradients
from ..gradients.calling import leaves
from ..gradients.capture import DEFAULT_MAX_BYTES


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


def ntk(
    model: nn.Module, inputs: Any, classes: Sequence[int], *, max_bytes: int = DEFAULT_MAX_BYTES
) -> Tensor:
    """The empirical neural tangent kernel, 1/C · Σ_c ⟨∂f_c(x_i)/∂θ, ∂f_c(x_j)/∂θ⟩ over these outputs f_c."""
    count = len(leaves(inputs)[0])
    nothing = torch.zeros(count, dtype=torch.long, device=leaves(inputs)[0].device)
    total: Tensor | None = None
    for label in classes:

        def output(outputs: Tensor, _: Tensor, label: int = label) -> Tensor:
            return outputs[:, label]

        grads = per_sample_gradients(model, output, (inputs, nothing), max_bytes=max_bytes)
        gram = torch.where(grads.finite[:, None] & grads.finite, grads.gram().double(), torch.nan)
        total = gram if total is None else total + gram
    if total is None:
        raise ValueError("classes is empty; at least one output is needed")
    return total / len(classes)
