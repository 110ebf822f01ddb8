"""A-GEM: averaged gradient episodic memory (Chaudhry et al. 2019)."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from ..memory import Samples
from .base import weighted_mean
from .optimized import optimized
from .uniform import RandomMemory

Name = TypeVar("Name", bound=Hashable)


class AGEM(RandomMemory):
    """The batch's gradient g; where it conflicts with that of a memory batch, g_ref, its projection (Eq. 11).

    Both are over what the optimiser has to learn, of the model and of the loss, and over nothing else: a step moves that alone.
    """

    def _update(self, samples: Samples, valid: Tensor) -> Tensor:
        loss = weighted_mean(self._losses(samples.inputs, samples.targets), valid)
        self._spoil(~(loss.detach().isfinite() & valid.any()))
        gradient = self._gradient(loss)
        replayed = self._replayed(samples)
        if replayed is not None:
            remembered = self._losses(replayed.inputs, replayed.targets).mean()
            self._spoil(~remembered.detach().isfinite())
            gradient = project(gradient, self._gradient(remembered))
        self._step_along(gradient)
        return loss

    def _gradient(self, loss: Tensor) -> dict[Tensor, Tensor]:
        """By parameter, of those that the loss depends on: another task's head is left alone."""
        learning = [p for p in optimized(self.optimizer) if p.requires_grad]
        parts = torch.autograd.grad(loss, learning, allow_unused=True)
        return {p: part for p, part in zip(learning, parts, strict=True) if part is not None}

    def _step_along(self, gradient: Mapping[Tensor, Tensor]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for parameter, part in gradient.items():
            parameter.grad = part
        self._apply_gradients()
        self.optimizer.zero_grad(set_to_none=True)


def project(gradient: Mapping[Name, Tensor], reference: Mapping[Name, Tensor]) -> dict[Name, Tensor]:
    """g − (gᵀg_ref / g_refᵀg_ref) g_ref where gᵀg_ref < 0, else g; a parameter that one of them leaves out has zero there."""
    products = [_product(part, reference[name]) for name, part in gradient.items() if name in reference]
    if not products:  # nothing in common, and so no conflict
        return dict(gradient)
    along = torch.stack(products).sum()
    square = torch.stack([_product(part, part) for part in reference.values()]).sum()
    back = torch.where((along < 0) & (square > 0), along / square, 0.0)
    projected = dict(gradient)
    for name, part in reference.items():
        along_reference = (back * part).to(part.dtype)
        projected[name] = gradient[name] - along_reference if name in gradient else -along_reference
    return projected


def _product(one: Tensor, two: Tensor) -> Tensor:
    """In single precision at least: squares of half-precision gradients vanish, or overflow."""
    wide = torch.promote_types(one.dtype, torch.float32)
    return (one.to(wide) * two.to(wide)).sum()
