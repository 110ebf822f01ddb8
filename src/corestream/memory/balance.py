"""Choose a quota of samples as evenly over groups as they allow."""

from collections.abc import Callable

import torch
from torch import Tensor

Balance = str | None | Callable[[Tensor], Tensor]


def groups(targets: Tensor, balance: Balance) -> Tensor:
    """The group each sample counts towards: its class, none at all, or what a callable makes of the targets."""
    if balance is None:
        return torch.zeros(len(targets), dtype=torch.long, device=targets.device)
    if callable(balance):
        found = balance(targets)
        if not isinstance(found, Tensor) or found.shape != (len(targets),):
            raise ValueError(f"balance must return one group a sample, shape [{len(targets)}]")
        return found
    check_targets(targets, balance)
    return targets


def check_targets(targets: Tensor, balance: Balance) -> None:
    """A balance by class needs classes."""
    if balance == "class" and (targets.dim() != 1 or targets.is_floating_point()):
        example = ", as balance=lambda y: y.long()" if targets.dim() == 1 else ""
        is_column = targets.dim() == 2 and targets.shape[1] == 1 and not targets.is_floating_point()
        first = "give y.squeeze(1), or else " if is_column else "give "
        raise ValueError(
            f"balance='class' needs one integer target a sample, got {targets.dtype} of shape {list(targets.shape)}: "
            f"{first}balance=None, or a callable that maps targets to groups{example}"
        )


def balanced(members: Tensor, quota: int, priority: Tensor) -> Tensor:
    """The indices of `quota` samples, group by group in turn, within a group by falling priority; NaN is the lowest.

    A group with too few leaves its share to the others, so that fewer than the quota come only where fewer samples exist.
    """
    if priority.is_floating_point():
        priority = priority.masked_fill(priority.isnan(), -torch.inf)
    order = torch.argsort(priority, descending=True, stable=True)
    ordered = members[order]
    rank = torch.empty_like(order)
    by_group = torch.argsort(ordered, stable=True)
    sizes = torch.unique_consecutive(ordered[by_group], return_counts=True)[1]
    starts = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    rank[by_group] = torch.arange(len(order), device=order.device) - starts
    turns = torch.argsort(rank, stable=True)[:quota]
    return order[turns]
