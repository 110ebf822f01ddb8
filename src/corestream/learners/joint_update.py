"""The update of a step whose one pass serves selection too: the samples it descends, and the parameters it leaves alone."""

import torch
from torch import Tensor

from ..fusing import fusible
from ..gradients import PerSampleGradients


@fusible
def update_rows(picked: Tensor, again: Tensor, finite: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """The samples of the update and their weights. What is missing or not finite is left out: the best pick stands in, with no weight."""
    k = picked.shape[0]
    rows = torch.cat([picked.clamp_min(0), again])
    good = finite[rows] & (torch.cat([picked, again]) >= 0)
    weights = shares * good
    heavier = k / good[:k].sum().clamp_min(1)  # fewer picks share the same weight
    weights = torch.cat([weights[:k] * heavier, weights[k:]])
    return torch.where(good, rows, rows[0]), weights


def is_unused(name: str, gradient: Tensor, grads: PerSampleGradients, rows: Tensor) -> bool:
    """Whether an ordinary step on the update's samples, `rows`, would leave the parameter alone: that of a head, say, which other samples
    of this pass went through, and none of these; where they have no gradient anywhere, it counts as used. On a card, where a look would
    wait, only what no sample of the pass used counts."""
    if name not in grads.general or gradient.is_cuda or bool(gradient.any()):
        return name in grads.unused
    return bool(grads.norms()[rows].any()) and bool(grads.only([name]).norms().any())
