"""What a look at a model leaves as it was."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

MODES = (None, "train", "eval")


@contextmanager
def unchanged_buffers(model: nn.Module, loss_fn: object = None) -> Iterator[None]:
    """Running statistics and the like, of a loss too, are afterwards what they were, and so are parameters that the forward pass
    replaces, or rescales as an embedding with `max_norm` does. A buffer whose shape has changed is left: the model knows of it."""
    modules = [*model.modules(), *(loss_fn.modules() if isinstance(loss_fn, nn.Module) else ())]
    replaceable = [
        (module._parameters, dict(module._parameters))
        for module in modules
        if not isinstance(module, torch.jit.ScriptModule)
    ]
    rescaled = [
        (weight, weight.detach().clone())
        for module in modules
        if getattr(module, "max_norm", None) is not None
        and isinstance(weight := getattr(module, "weight", None), Tensor)
    ]
    before = [
        (module, name, tensor, tensor.clone())
        for module in modules
        for name, tensor in module._buffers.items()
        if tensor is not None
    ]
    try:
        yield
    finally:
        for now_held, held in replaceable:
            now_held.update({name: parameter for name, parameter in held.items() if name in now_held})
        for weight, value in rescaled:
            weight.data.copy_(value)
        for module, name, tensor, value in before:
            now = module._buffers[name] if name in module._buffers else None  # noqa: SIM401 - a scripted one has no get
            if now is None or now.shape != value.shape:
                continue
            if tensor.layout == torch.strided:
                # by .data: restoring must not count as a change
                tensor.data.copy_(value)
            module._buffers[name] = tensor


class Held(NamedTuple):
    """The gradient that a parameter holds already."""

    gradient: Tensor | None
    version: int
    copy: Tensor | None

    @classmethod
    def of(cls, parameter: Tensor) -> "Held":
        gradient = parameter.grad
        return cls(None, 0, None) if gradient is None else cls(gradient, gradient._version, gradient.clone())

    def put_back(self, parameter: Tensor) -> bool:
        """Give the parameter the gradient of before; True where it had another since."""
        now = parameter.grad
        if now is self.gradient and (now is None or now._version == self.version):
            return False
        parameter.grad = self.copy
        return True


def _without_cudnn(model: nn.Module) -> AbstractContextManager[Any]:
    """cuDNN's recurrent layers have no backward pass in eval mode; torch's own have."""
    recurrent = any(
        isinstance(module, nn.RNNBase) and any(p.is_cuda for p in module.parameters())
        for module in model.modules()
    )
    return torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext()


@contextmanager
def in_mode(model: nn.Module, mode: str | None) -> Iterator[None]:
    """The model in train or eval mode for a while; each module's own flag is restored."""
    if mode not in MODES:
        raise ValueError(f"mode must be None, 'train' or 'eval', got {mode!r}")
    if mode is None:
        yield
        return
    before = [(module, module.training) for module in model.modules()]
    try:
        model.train(mode == "train")
        with _without_cudnn(model) if mode == "eval" else nullcontext():
            yield
    finally:
        for module, training in before:
            module.training = training
