"""A device with memory of its own and without double precision, as Apple's are, played by the processor.

Torch lets a program bring its own device. This one keeps a processor's tensor inside each of its own, refuses what such a device would
refuse (double precision, operands on two devices, NumPy), and computes everything else on the tensors inside: the same to the bit.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

aten = torch.ops.aten


class _Module(_DummyBackendModule):
    """What torch.cuda is to a card: its random draws are the processor's."""

    @staticmethod
    def get_rng_state(device: torch.device) -> Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: Tensor, device: torch.device) -> None:
        torch.set_rng_state(state)


_setup_privateuseone_for_python_backend("single", _Module())
DEVICE = torch.device("single", 0)


class SingleTensor(Tensor):
    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "SingleTensor":
        if inner.dtype in (torch.float64, torch.complex128):
            raise TypeError("the device has no double precision")
        self = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
            requires_grad=inner.requires_grad,
        )
        self.inner = inner
        return self

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("the tensor is not on the processor")

    def __repr__(self) -> str:
        return f"SingleTensor({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class Device(TorchDispatchMode):
    """While it is entered the device is there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class Generator(torch.Generator):
    """Torch lets no program bring its own generator: this one says that it is on the device."""

    def __new__(cls, device: Any = "cpu") -> "Generator":
        self = super().__new__(cls, "cpu")
        self._device = torch.device(device)
        return self

    @property
    def device(self) -> torch.device:
        return self._device


def _compute(func: Any, args: Any, kwargs: Any) -> Any:
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    mine = [x for x in tensors if isinstance(x, SingleTensor)]
    copies = func in (aten._to_copy.default, aten.copy_.default)
    # an index, and a number, may be the processor's
    if mine and not copies and "index" not in func.__name__:
        for x in tensors:
            if not isinstance(x, SingleTensor) and x.dim():
                raise RuntimeError(f"{func}: tensors on two devices")
    if func is aten.copy_.default:
        lands = isinstance(args[0], SingleTensor)
    elif kwargs.get("device") is not None:
        lands = torch.device(kwargs["device"]).type == DEVICE.type
        kwargs = {**kwargs, "device": torch.device("cpu")}
    else:
        lands = bool(mine)
    out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if mine and torch.Tag.inplace_view in func.tags:
        with no_dispatch():
            func(*args, **kwargs)  # the outer tensor's shape changes too
    if not lands or func is aten._local_scalar_dense.default:
        return out
    known = {id(x.inner): x for x in mine}

    def outer(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return known[id(x)] if id(x) in known else SingleTensor(x)

    return tree_map(outer, out)


def _inner(x: Any) -> Any:
    return x.inner if isinstance(x, SingleTensor) else x


_library = torch.library.Library("aten", "IMPL")


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return SingleTensor(torch.empty(size, dtype=dtype))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return SingleTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _inner(target).copy_(_inner(source))
    return target


_library.impl("empty.memory_format", _empty, "PrivateUse1")
_library.impl("empty_strided", _empty_strided, "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")
