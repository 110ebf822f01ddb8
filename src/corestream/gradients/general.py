"""The general path: for parameters no rule covers, one backward pass a sample on the graph of the same forward."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from ..errors import NonFiniteError
from ..messages import in_short
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
            f"per-sample gradients of {in_short(parameters)} need {needed:,} bytes for {len(losses)} samples, and max_bytes is "
            f"{max_bytes:,}. No layer rule covers how the model uses them: raise max_bytes, take smaller batches, freeze them, or "
            "leave them out of the selection with parameters="
        )
    if not losses.is_cuda:
        finite = torch.isfinite(losses)
        if bool(finite.any()) and not bool(finite.all()):
            raise Spoiled(~finite)
    every = list(parameters.values())
    return written_out(
        parameters,
        (torch.autograd.grad(loss, every, retain_graph=True, allow_unused=True) for loss in losses.unbind()),
        len(losses),
        dtype,
    )


def carried_back(made: Tensor, rows: Tensor, parameters: Mapping[str, Tensor]) -> list[Rows]:
    """g_n of parameters, from that of what was made of them: `rows` is [N, *made.shape]."""
    if made.grad_fn is None:
        return [Rows(name, rows) for name in parameters]
    every = list(parameters.values())
    gradients = (
        torch.autograd.grad(made, every, row.to(made.dtype), retain_graph=True, allow_unused=True)
        for row in rows
    )
    return written_out(parameters, gradients, len(rows), rows.dtype)


def written_out(
    parameters: Mapping[str, Tensor],
    gradients: Iterable[Sequence[Tensor | None]],
    count: int,
    dtype: torch.dtype,
) -> list[Rows]:
    """Gradients that come sample by sample, one for each parameter, or None for zeros."""
    values = [torch.zeros(count, *p.shape, dtype=dtype, device=p.device) for p in parameters.values()]
    for n, of_sample in enumerate(gradients):
        for rows, gradient in zip(values, of_sample, strict=True):
            if gradient is not None:
                rows[n] = gradient.to_dense() if gradient.is_sparse else gradient
    return [Rows(name, rows) for name, rows in zip(parameters, values, strict=True)]
