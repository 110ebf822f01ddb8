"""MultiheadAttention: its projections are linear layers inside one functional, where no hook reaches.

During the call its forward runs from the same code with one name replaced: `linear` also tells us what it saw. Should a torch
version call its projections another way, nothing is told, and the parameters take the general path: slower, still exact.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch.nn.functional
from torch import Tensor, nn

from .rebuilt import rebuilt

F: Any = torch.nn.functional  # its private helpers have no type stubs

Tell = Callable[[Tensor, Tensor, Tensor | None, Tensor], object]  # input, weight, bias, output


def told_forward(module: nn.MultiheadAttention, tell: Tell) -> Any:
    """`module.forward`, calling `tell` for every projection it makes."""

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        output: Tensor = F.linear(x, weight, bias)
        tell(x, weight, bias, output)
        return output

    packed = rebuilt(F._in_projection_packed, linear=linear)
    separate = rebuilt(F._in_projection, linear=linear)
    functional = SimpleNamespace(**vars(F))
    functional.multi_head_attention_forward = rebuilt(
        F.multi_head_attention_forward,
        linear=linear,
        _in_projection_packed=packed,
        _in_projection=separate,
        has_torch_function=lambda tensors: False,  # which would go on with the ordinary one
    )
    return rebuilt(type(module).forward, F=functional).__get__(module)
