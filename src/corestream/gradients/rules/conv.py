"""Convolutions: linear layers on patches. A transposed convolution swaps the two factors' roles."""

import math
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from ..blocks import Block, Convolved, Geometry, Rows
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
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    if mode == "constant" and not isinstance(module.padding, str):
        padding = _on_both_sides(module)
    else:  # torch itself goes by what was made of it at the start
        padding = tuple(module._reversed_padding_repeated_twice)
    return [_convolved(weight, bias, module, padding, mode, seen.gradient, seen.inputs, seen.max_bytes)]


@register(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, events=_events)
def transposed_convolution(seen: Seen) -> list[Block]:
    """The forward pass is a convolution's backward pass: the output gradient is unfolded, the input is not."""
    module = seen.module
    assert isinstance(module, ConvTranspose)
    blocks: list[Block] = []
    if (weight := seen.names.get("weight")) is not None:
        padding = _on_both_sides(module)
        blocks.append(
            _convolved(weight, None, module, padding, "constant", seen.inputs, seen.gradient, seen.max_bytes)
        )
    if (bias := seen.names.get("bias")) is not None:
        blocks.append(_bias_rows(bias, seen))
    return blocks


def _convolved(
    weight: str, bias: str | None, module: Conv | ConvTranspose, padding: tuple[int, ...], mode: str,
    left: Tensor, right: Tensor, max_bytes: int,
) -> Convolved:  # fmt: skip
    """Both sides are [N, T, C, *space]: the kernel moves over the right one, and its steps are the left one's positions."""
    shape = tuple(module.weight.shape)
    kernel_size = shape[2:]  # the module's own numbers may be older than its weight
    stride, dilation = (_sizes(size, len(kernel_size)) for size in (module.stride, module.dilation))
    geometry = Geometry(stride, dilation, module.groups, padding, mode)
    steps = tuple(left.shape[3:])
    unfold = partial(_patches, geometry, kernel_size, steps)
    positions = Factor(_positions(left, module.groups))
    width = right.shape[2] // module.groups * math.prod(kernel_size)
    patches = Factor(right, unfold, (module.groups, positions.positions, width))
    return Convolved(weight, shape, positions, patches, bias, max_bytes, geometry, steps)


def _on_both_sides(module: Conv | ConvTranspose) -> tuple[int, ...]:
    """The padding as torch's pad takes it, from the last dimension on."""
    assert not isinstance(module.padding, str)
    sizes = _sizes(module.padding, module.weight.dim() - 2)
    return tuple(size for size in reversed(sizes) for _ in range(2))


def _sizes(given: int | tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    """One for each dimension: who changes a layer's attributes may give one for all, as torch allows."""
    return (given,) * dimensions if isinstance(given, int) else tuple(given)


def _bias_rows(name: str, seen: Seen) -> Rows:
    return Rows(name, seen.gradient.flatten(3).sum((1, 3)))


def _positions(x: Tensor, groups: int) -> Tensor:
    """[N, T, C, *space] as [N, G, T·positions, C/G]. Positions stay next to each other in memory: nothing is copied."""
    n, calls, channels = x.shape[:3]
    split = x.reshape(n, calls, groups, channels // groups, -1)
    return split.permute(0, 2, 3, 1, 4).reshape(n, groups, channels // groups, -1).mT


def _patches(geometry: Geometry, kernel_size: tuple[int, ...], steps: tuple[int, ...], x: Tensor) -> Tensor:
    """The patch at every step of the kernel, [N, G, T·steps, C/G·kernel]."""
    n, calls = x.shape[:2]
    x = F.pad(x.flatten(0, 1), geometry.padding, mode=geometry.mode)
    space = len(kernel_size)
    for d in range(space):
        kernel, stride, dilation = kernel_size[d], geometry.stride[d], geometry.dilation[d]
        span = dilation * (kernel - 1) + 1
        x = x.unfold(2 + d, span, stride).narrow(2 + d, 0, steps[d])[..., ::dilation]
    # x is a view [N·T, C, *steps, *kernel]: order the axes, then copy once, whole rows of positions at a time
    x = x.unflatten(1, (geometry.groups, -1)).unflatten(0, (n, calls))
    order = [0, 2, 3, *range(4 + space, 4 + 2 * space), 1, *range(4, 4 + space)]
    return x.permute(order).reshape(n, geometry.groups, -1, calls * math.prod(steps)).mT
