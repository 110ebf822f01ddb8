"""What tells one loss from another: how a batch's samples lie in the gradients is found once for each loss."""

import functools
import types
from collections.abc import Hashable
from typing import Any

import torch
from torch import nn

NUMBERS = (int, float, complex)
SWITCHES = (bool, str, bytes, type, type(None), torch.dtype, torch.device)
MACHINERY = frozenset(vars(nn.Module())) - {"training"}  # what every module has
DEPTH = 3  # a loss, what it holds, and what that holds


def identity(loss: Any, depth: int = DEPTH) -> Hashable:
    """Equal for equal code with equal settings, so that a lambda written in a loop stays the same one.

    Of what a loss holds rather than is given (closures, attributes), numbers count by being zero or not, and tensors and containers
    not at all: they may change at every step.
    """
    held, given = functools.partial(_held, depth=depth - 1), functools.partial(_given, depth=depth - 1)
    if isinstance(loss, types.FunctionType):
        cells = tuple(held(cell.cell_contents) for cell in loss.__closure__ or () if _is_filled(cell))
        return loss.__code__, given(loss.__defaults__), given(loss.__kwdefaults__), cells
    if isinstance(loss, types.MethodType):
        return identity(loss.__func__, depth), held(loss.__self__)
    if isinstance(loss, functools.partial):
        return identity(loss.func, depth), given(loss.args), given(loss.keywords)
    if isinstance(loss, nn.Module):  # with its parts, whatever their depth
        return tuple(_settings(module, depth - 1) for module in loss.modules())
    return _attributes(loss, depth)


def _given(value: Any, depth: int) -> Hashable:
    """Arguments and defaults, which the caller chose."""
    if isinstance(value, tuple | list):
        return (type(value), *(_given(one, depth) for one in value))
    if isinstance(value, dict):
        return (dict, *((name, _given(one, depth)) for name, one in value.items()))
    return (type(value), value) if isinstance(value, NUMBERS) else _held(value, depth)


def _held(value: Any, depth: int) -> Hashable:
    if isinstance(value, SWITCHES):
        return value
    if isinstance(value, NUMBERS):
        return value == 0
    if depth <= 0 or isinstance(value, torch.Tensor | tuple | list | dict | set):
        return (type(value),)
    return identity(value, depth)


def _attributes(owner: Any, depth: int) -> Hashable:
    found = [*getattr(owner, "__dict__", {}).items(), *_slots(owner)]
    name = getattr(owner, "__qualname__", None)  # of a function that is not written in Python
    return type(owner), name, tuple((name, _held(value, depth - 1)) for name, value in found)


def _slots(owner: Any) -> list[tuple[str, Any]]:
    names = [name for kind in type(owner).__mro__ for name in _listed(getattr(kind, "__slots__", ()))]
    return [(name, getattr(owner, name)) for name in names if hasattr(owner, name)]


def _listed(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _settings(module: nn.Module, depth: int) -> Hashable:
    """Its own attributes; its parts are not among them."""
    names = vars(module).keys() - MACHINERY
    return type(module), tuple((name, _held(vars(module)[name], depth)) for name in sorted(names))


def _is_filled(cell: types.CellType) -> bool:
    """A function that names itself is made before its name is there."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
