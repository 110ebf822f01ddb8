"""Torch's own code with other objects behind some of its names: how layers are seen into that are one function inside."""

from types import FunctionType
from typing import Any


def rebuilt(function: Any, **names: Any) -> FunctionType:
    """The same code, seeing other objects behind some global names."""
    twin = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin
