"""Pure functions of tensors that a compiler may take whole.

A step's many small operations cost a card more to start than to do. Functions marked `fusible` are ordinary ones, until `fusing` is on:
then torch.compile makes a few kernels of each. Sums may then be taken in another order, so that last bits differ.
"""

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_backend: str | None = None


def can_fuse() -> bool:
    """Whether there is a compiler for a card."""
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


def is_fusing() -> bool:
    return _backend is not None


@contextmanager
def fusing(backend: str | None = "inductor") -> Iterator[None]:
    """Fusible functions are compiled at their first call inside; None leaves them as they are."""
    global _backend
    before, _backend = _backend, backend
    try:
        yield
    finally:
        _backend = before


def _on_card(*args: object) -> bool:
    """For a processor the compiler needs half a minute, and the operations cost little."""
    return any(isinstance(arg, Tensor) and arg.is_cuda for arg in args)


def _has_empty(*args: object) -> bool:
    """The compiler makes a function of its own for a tensor without samples, as the replay batch of a first task is."""
    return any(isinstance(arg, Tensor) and arg.numel() == 0 for arg in args)


def fusible(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function of tensors and numbers alone, without a look at any value. What cannot be compiled runs as it is, with a warning."""
    compiled: dict[str, Callable[Arguments, Result]] = {}

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if torch.compiler.is_compiling():  # it is a part of another one
            return function(*args, **kwargs)
        if _backend is None or (_backend == "inductor" and not _on_card(*args)) or _has_empty(*args):
            return function(*args, **kwargs)
        if _backend not in compiled:
            compiled[_backend] = torch.compile(function, backend=_backend, fullgraph=True, dynamic=True)
        try:
            return compiled[_backend](*args, **kwargs)
        except Exception as error:
            result = function(*args, **kwargs)  # an error of its own comes up here
            compiled[_backend] = function
            reason = str(error).splitlines()[0] if str(error) else ""
            warnings.warn(
                f"{function.__qualname__} runs unfused: {type(error).__name__}: {reason}", stacklevel=2
            )
            return result

    return run
