"""A-GEM: averaged gradient episodic memory (Chaudhry et al. 2019)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..gradients.calling import LossFn
from ..memory import ReplayMemory, Samples
from .base import weighted_mean
from .uniform import Uniform


class AGEM(Uniform):
    """The batch's gradient g; where it conflicts with that of a memory batch, g_ref, its projection (Eq. 11)."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        k: int | None = None,
        replay: int = 10,
        candidates: int = 1000,
        loss_fn: LossFn | None = None,
        lr_decay: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            model,
            optimizer,
            memory,
            k=k,
            replay=replay,
            candidates=candidates,
            loss_fn=loss_fn,
            lr_decay=lr_decay,
            generator=generator,
        )

    def _update(self, samples: Samples, valid: Tensor) -> Tensor:
        loss = weighted_mean(self._losses(samples.inputs, samples.targets), valid)
        self._spoil(~(loss.detach().isfinite() & valid.any()))
        gradient = self._gradient(loss)
        reference = self._replayed(samples)
        if reference is not None:
            gradient = project(
                gradient, self._gradient(self._losses(reference.inputs, reference.targets).mean())
            )
        self._step(gradient)
        return loss

    def _gradient(self, loss: Tensor) -> dict[str, Tensor]:
        """Of the parameters that the loss depends on: another task's head is left alone."""
        parts = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True)
        return {name: part for name, part in zip(self.parameters, parts, strict=True) if part is not None}


def project(gradient: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> dict[str, Tensor]:
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
