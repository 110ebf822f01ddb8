"""Reads CIFAR's pickles and nothing else: only the opcodes, names and byte arrays those files hold."""

import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

OPCODES = [
    "PROTO",
    "STOP",
    "MARK",
    "EMPTY_DICT",
    "EMPTY_LIST",
    "TUPLE",
    "EMPTY_TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
    "NONE",
    "NEWTRUE",
    "NEWFALSE",
    "BININT",
    "BININT1",
    "BININT2",
    "BINSTRING",
    "SHORT_BINSTRING",
    "BINPUT",
    "LONG_BINPUT",
    "BINGET",
    "LONG_BINGET",
    "APPEND",
    "APPENDS",
    "SETITEM",
    "SETITEMS",
    "GLOBAL",
    "REDUCE",
    "BUILD",
]


class Refused(pickle.UnpicklingError):
    """The pickle asks for something CIFAR's files do not contain."""


class _Name:
    """Stands for a name the pickle imports. Calling it is all that can be done with it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise Refused("gives a state to an imported name")


class _Array:
    """NumPy's half-made array, until its state arrives: version, shape, dtype, Fortran order, bytes."""

    value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _ByteType) or not isinstance(data, bytes) or not isinstance(shape, tuple):
            raise Refused("an array of something other than bytes")
        if not all(type(side) is int and side >= 0 for side in shape) or math.prod(shape) != len(data):
            raise Refused(f"an array of shape {shape} with {len(data)} bytes")
        self.value = np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")


class _ByteType:
    """NumPy's dtype, of which only unsigned bytes are admitted; its state says nothing more."""

    def __init__(self, code: Any, *_: Any) -> None:
        if code != b"u1":
            raise Refused(f"the type {code!r}")

    def __setstate__(self, state: Any) -> None:
        pass


class _Unpickler(pickle._Unpickler):
    """The one in Python: its table of opcodes can be cut down, and no forged index makes its memo grow."""

    dispatch = {  # noqa: RUF012
        getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in OPCODES
    }

    def find_class(self, module: str, name: str) -> _Name:
        if (module, name) in (
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
        ):
            return _Name(lambda *arguments: _Array())
        if (module, name) == ("numpy", "dtype"):
            return _Name(_ByteType)
        if (module, name) == ("numpy", "ndarray"):
            return _Name(_refuse_call)
        raise Refused(f"imports {module}.{name}")


def _refuse_call(*arguments: Any) -> Any:
    raise Refused("makes an array by itself")


def load(data: bytes) -> dict[bytes, Any]:
    """The dictionary in a CIFAR file, its strings as bytes, its arrays as NumPy arrays of bytes."""
    try:
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    except KeyError as error:
        raise Refused(f"uses the opcode or memo entry {error.args[0]!r}") from error
    if not isinstance(content, dict):
        raise Refused(f"holds a {type(content).__name__}, not a dictionary")
    return {key: value.value if isinstance(value, _Array) else value for key, value in content.items()}
