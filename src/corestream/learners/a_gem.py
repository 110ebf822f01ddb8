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
        parts = torch.autograd.grad(loss, list(self.parameters.values()), materialize_grads=True)
        return dict(zip(self.parameters, parts, strict=True))


def project(gradient: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """g − (gᵀg_ref / g_refᵀg_ref) g_ref where gᵀg_ref < 0, else g."""
    along = torch.stack([(gradient[name] * part).sum() for name, part in reference.items()]).sum()
    square = torch.stack([(part * part).sum() for part in reference.values()]).sum()
    back = torch.where((along < 0) & (square > 0), along / square, 0.0)
    return {name: part - back * reference[name] for name, part in gradient.items()}
