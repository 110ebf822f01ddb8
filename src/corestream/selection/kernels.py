"""Kernels for the bilevel selector."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..devices import wide
from ..gradients import PerSampleGradients, per_sample_gradients
from ..gradients.calling import LossFn, leaves, map_inputs
from ..gradients.capture import DEFAULT_MAX_BYTES


def rbf(features: Tensor, width: float | None = None) -> Tensor:
    """exp(−‖x_i − x_j‖² / (2 width²)); without a width the median distance between two samples is it."""
    features = wide(features.flatten(1))
    distances = torch.cdist(features, features)
    if width is None:
        apart = torch.pdist(features[features.isfinite().all(1)])
        scale = apart.median() if len(apart) else distances.new_ones(())
        scale = torch.where(scale > 0, scale, 1.0)
    else:
        scale = distances.new_tensor(width)
    return torch.exp(-(distances**2) / (2 * scale**2))


def gradient_gram(gradients: Callable[[slice], PerSampleGradients], count: int) -> Tensor:
    """⟨g_n, g_p⟩ of so many samples, NaN where one of the two is not finite. In parts, if a layer without a rule would otherwise need more
    memory than it may."""
    parts = 1
    while True:
        try:
            return _gram_in_parts(gradients, count, parts)
        except MemoryError:
            if parts >= count:
                raise
            parts *= 2


def _gram_in_parts(gradients: Callable[[slice], PerSampleGradients], count: int, parts: int) -> Tensor:
    size = -(-count // parts)
    slices = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    blocks: dict[tuple[int, int], Tensor] = {}
    for i, rows in enumerate(slices):
        these = gradients(rows)
        blocks[i, i] = torch.where(these.finite[:, None] & these.finite, these.gram(), torch.nan)
        for j in range(i + 1, len(slices)):
            others = gradients(slices[j])
            usable = these.finite[:, None] & others.finite
            blocks[i, j] = torch.where(usable, these.gram(others), torch.nan)
            blocks[j, i] = blocks[i, j].mT
    places = range(len(slices))
    return torch.cat([torch.cat([blocks[i, j] for j in places], 1) for i in places])


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

        def gradients(part: slice, output: LossFn = output) -> PerSampleGradients:
            some = map_inputs(lambda x: x[part], inputs)
            return per_sample_gradients(model, output, (some, nothing[part]), max_bytes=max_bytes)

        gram = wide(gradient_gram(gradients, count))
        total = gram if total is None else total + gram
    if total is None:
        raise ValueError("classes is empty; at least one output is needed")
    return total / len(classes)
