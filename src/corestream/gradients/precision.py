"""Inner products accumulate in float32 or better, also where the caller's autocast would have them in bfloat16."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor


class _HasLosses(Protocol):
    losses: Tensor


First = TypeVar("First", bound=Tensor | _HasLosses)
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def full_precision(
    function: Callable[Concatenate[First, Rest], Result],
) -> Callable[Concatenate[First, Rest], Result]:
    """Run the function outside autocast; its first argument, a tensor or gradients, tells the device."""

    @wraps(function)
    def run(first: First, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
        device = (first if isinstance(first, Tensor) else first.losses).device.type
        if not torch.is_autocast_enabled(device):
            return function(first, *args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(first, *args, **kwargs)

    return run


@contextmanager
def convolutions_like_products(x: Tensor) -> Iterator[None]:
    """On a card torch lets convolutions round to TF32 by itself, matrix products only when told to: inner products go by the latter."""
    if not x.is_cuda:
        yield
        return
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = before and torch.get_float32_matmul_precision() != "highest"
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
