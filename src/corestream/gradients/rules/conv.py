"""Convolutions: linear layers on patches. A transposed convolution swaps the two factors' roles."""

import math
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..blocks import Block, Outer, Rows
from ..blocks.factor import Factor
from .rule import Seen, register

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
ConvTranspose = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


def _events(module: nn.Module, x: Tensor) -> tuple[int, int]:
    spatial = len(module.kernel_size)  # type: ignore[arg-type]
    return spatial + 1, spatial + 1


@register(nn.Conv1d, nn.Conv2d, nn.Conv3d, events=_events)
def convolution(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, Conv)
    weight, bias = seen.names.get("weight"), seen.names.get("bias")
    if weight is None:
        return [_bias_rows(bias, seen)] if bias is not None else []
    padding = module._reversed_padding_repeated_twice
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    counts = seen.gradient.shape[3:]
    right = Factor(seen.inputs, partial(_patches, module, padding, mode, counts))
    left = Factor(_positions(seen.gradient, module.groups))
    return [Outer(weight, tuple(module.weight.shape), left, right, bias, seen.max_bytes)]


@register(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, events=_events)
def transposed_convolution(seen: Seen) -> list[Block]:
    """The forward pass is a convolution's backward pass: the output gradient is unfolded, the input is not."""
    module = seen.module
    assert isinstance(module, ConvTranspose)
    blocks: list[Block] = []
    if (weight := seen.names.get("weight")) is not None:
        padding = [p for p in reversed(_sizes(module.padding)) for _ in range(2)]
        counts = seen.inputs.shape[3:]
        right = Factor(seen.gradient, partial(_patches, module, padding, "constant", counts))
        left = Factor(_positions(seen.inputs, module.groups))
        blocks.append(Outer(weight, tuple(module.weight.shape), left, right, None, seen.max_bytes))
    if (bias := seen.names.get("bias")) is not None:
        blocks.append(_bias_rows(bias, seen))
    return blocks


def _bias_rows(name: str, seen: Seen) -> Rows:
    return Rows(name, seen.gradient.flatten(3).sum((1, 3)))


def _positions(x: Tensor, groups: int) -> Tensor:
    """[N, T, C, *space] as [N, G, T·positions, C/G]. Positions stay next to each other in memory: nothing is copied."""
    n, calls, channels = x.shape[:3]
    split = x.reshape(n, calls, groups, channels // groups, -1)
    return split.permute(0, 2, 3, 1, 4).reshape(n, groups, channels // groups, -1).mT


def _patches(
    module: Conv | ConvTranspose, padding: list[int], mode: str, counts: tuple[int, ...], x: Tensor
) -> Tensor:
    """The patch under every output position, [N, G, T·positions, C/G·kernel]; `counts` output positions a dimension."""
    n, calls = x.shape[:2]
    x = F.pad(x.flatten(0, 1), padding, mode=mode)
    space = len(module.kernel_size)
    for d in range(space):
        kernel, stride, dilation = module.kernel_size[d], module.stride[d], module.dilation[d]
        span = dilation * (kernel - 1) + 1
        x = x.unfold(2 + d, span, stride).narrow(2 + d, 0, counts[d])[..., ::dilation]
    # x is a view [N·T, C, *positions, *kernel]: order the axes, then copy once, whole rows of positions at a time
    x = x.unflatten(1, (module.groups, -1)).unflatten(0, (n, calls))
    order = [0, 2, 3, *range(4 + space, 4 + 2 * space), 1, *range(4, 4 + space)]
    return x.permute(order).reshape(n, module.groups, -1, calls * math.prod(counts)).mT


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(value)
