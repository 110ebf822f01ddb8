"""The general path: for parameters no rule covers, one backward pass a sample on the graph of the same forward."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import NonFiniteError
from .blocks import Rows


class Spoiled(NonFiniteError):
    """Some samples are not finite, and 0 × NaN is NaN: the others' backward passes would meet what they left behind."""

    def __init__(self, bad: Tensor) -> None:
        self.bad = bad
        which = bad.nonzero().flatten().tolist()
        super().__init__(
            f"the losses or inputs of samples {which} are not finite, and spoil the gradients of the others"
        )


def stand_ins(bad: Tensor) -> Tensor:
    """For each sample the one to put in its place: itself, or the first good one."""
    rows = torch.arange(len(bad), device=bad.device)
    return torch.where(bad, rows[~bad][0], rows)


def general_rows(
    losses: Tensor, parameters: Mapping[str, Tensor], dtype: torch.dtype, max_bytes: int
) -> list[Rows]:
    """g_n of each parameter, written out: N × their size, which must fit the budget."""
    needed = len(losses) * sum(parameter.numel() for parameter in parameters.values()) * dtype.itemsize
    if needed > max_bytes:
        raise MemoryError(
            f"per-sample gradients of {', '.join(parameters)} need {needed:,} bytes for {len(losses)} samples, and max_bytes is "
            f"{max_bytes:,}. No layer rule covers how the model uses them: raise max_bytes, take smaller batches, freeze them, or "
            "leave them out of the selection with parameters="
        )
    if not losses.is_cuda:
        finite = torch.isfinite(losses)
        if bool(finite.any()) and not bool(finite.all()):
            raise Spoiled(~finite)
    values = [
        torch.zeros(len(losses), *parameter.shape, dtype=dtype, device=parameter.device)
        for parameter in parameters.values()
    ]
    for n, loss in enumerate(losses.unbind()):
        gradients = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True, allow_unused=True)
        for rows, gradient in zip(values, gradients, strict=True):
            if gradient is not None:
                rows[n] = gradient.to_dense() if gradient.is_sparse else gradient
    return [Rows(name, rows) for name, rows in zip(parameters, values, strict=True)]
