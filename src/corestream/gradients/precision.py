"""Inner products accumulate in float32 or better, also where the caller's autocast would have them in bfloat16."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor


class _Lossy(Protocol):
    losses: Tensor


First = TypeVar("First", bound=Tensor | _Lossy)
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
