"""What an optimiser has to learn, and whether it is what a learner looks at."""

import inspect
import warnings
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def optimized(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The parameters of all its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def rates(optimizer: torch.optim.Optimizer) -> dict[int, float]:
    """The learning rate of each, by its id."""
    return {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}


def check_optimizer(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor]) -> None:
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(
            f"optimizer must be one of torch.optim, got {type(optimizer).__name__}: give torch.optim.SGD(model.parameters(), lr=…)"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "LBFGS evaluates the loss several times a step, which a learner does not: give another optimiser"
        )
    if set(map(id, optimized(optimizer))).isdisjoint(map(id, parameters)):
        raise ValueError(
            "the optimiser has none of the model's trainable parameters: nothing would be learned"
        )


def warn_of_untrained(names: Sequence[str]) -> None:
    more = ", …" if len(names) > 4 else ""
    warnings.warn(
        f"the optimiser does not have {len(names)} of the model's trainable parameters, which are looked at and not trained: "
        f"{', '.join(names[:4])}{more}; give them to it (add_param_group), or freeze them",
        stacklevel=outside(),
    )


def outside() -> int:
    """How many frames up the caller of these learners is."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("corestream.learners"):
        frame, level = frame.f_back, level + 1
    return max(1, level)
