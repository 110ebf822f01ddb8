"""What a look at a model leaves as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Running statistics and the like are afterwards what they were, and so are parameters that the forward pass replaces, or rescales
    as an embedding with `max_norm` does. A buffer whose shape has changed is left: the model knows of it."""
    replaceable = [
        (module._parameters, dict(module._parameters))
        for module in model.modules()
        if not isinstance(module, torch.jit.ScriptModule)
    ]
    rescaled = [
        (weight, weight.detach().clone())
        for module in model.modules()
        if getattr(module, "max_norm", None) is not None
        and isinstance(weight := getattr(module, "weight", None), Tensor)
    ]
    before = [
        (module, name, tensor, tensor.clone())
        for module in model.modules()
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
        """Whether it had to be."""
        now = parameter.grad
        if now is self.gradient and (now is None or now._version == self.version):
            return False
        parameter.grad = self.copy
        return True
