"""Linear: g_n = Σ_t b_nt ⊗ a_nt, with a the input and b the output gradient."""

from torch import nn

from ..blocks import Block, Outer, Rows
from ..blocks.factor import Factor
from .rule import Seen, register


@register(nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear, events=lambda module, x: (1, 1))
def linear(seen: Seen) -> list[Block]:
    weight, bias = seen.names.get("weight"), seen.names.get("bias")
    if weight is not None:
        left, right = Factor(seen.gradient.unsqueeze(1)), Factor(seen.inputs.unsqueeze(1))
        shape = (seen.gradient.shape[-1], seen.inputs.shape[-1])
        return [Outer(weight, shape, left, right, bias, seen.max_bytes)]
    return [Rows(bias, seen.gradient.sum(1))] if bias is not None else []
