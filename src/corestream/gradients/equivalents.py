"""Functions of torch that take a parameter, each with the layer that does the same."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from .blocks import Block, Lookup, Outer, Rows
from .blocks.factor import Factor
from .einsums import rule_for, terms_of
from .rules import RULES, Rule, Seen


@dataclass(frozen=True)
class Layer:
    """The layer that does what a function does."""

    rule: Rule
    module: nn.Module
    inputs: Tensor
    weight: Tensor | None
    bias: Tensor | None = None
    statistics: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, module: nn.Module, inputs: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> Self:
        return cls(RULES[type(module)], module, inputs, weight, bias)


def _transposed(seen: Seen) -> list[Block]:
    """y = x @ weight + bias."""
    weight, bias = seen.names.get("weight"), seen.names.get("bias")
    blocks: list[Block] = []
    if weight is not None:
        left, right = Factor(seen.inputs.unsqueeze(1)), Factor(seen.gradient.unsqueeze(1))
        shape = (seen.inputs.shape[-1], seen.gradient.shape[-1])
        blocks.append(Outer(weight, shape, left, right, None, seen.max_bytes))
    if bias is not None:
        blocks.append(Rows(bias, seen.gradient.sum(1)))
    return blocks


def _from_the_left(seen: Seen) -> list[Block]:
    """y = weight @ x, for columns of x."""
    return LINEAR.blocks(replace(seen, inputs=_as_rows(seen.inputs), gradient=_as_rows(seen.gradient)))


def _as_rows(columns: Tensor) -> Tensor:
    return columns.mT.flatten(1, 2)


NO_LAYER = nn.Identity()  # for rules that do not look at it
LINEAR, TRANSPOSED = RULES[nn.Linear], Rule(_transposed, RULES[nn.Linear].events)
FROM_THE_LEFT = Rule(_from_the_left, events=lambda module, x: (2, 2))
TURNED = {LINEAR: TRANSPOSED, TRANSPOSED: LINEAR}  # what a rule becomes with a transposed weight


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Layer | None:
    if weight.dim() != 2:
        return None
    return Layer(LINEAR, NO_LAYER, input, weight, _one_an_output(bias, weight.shape[0]))


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor) -> Layer:
    return Layer(TRANSPOSED, NO_LAYER, mat1, mat2, _one_an_output(input, mat2.shape[1]))


def _one_an_output(bias: Tensor | None, outputs: int) -> Tensor | None:
    """Torch takes others too, and repeats them."""
    return bias if bias is not None and bias.shape == (outputs,) else None


def _matmul(input: Tensor, other: Tensor) -> Layer | None:
    if input.dim() >= 2 and other.dim() == 2:
        return Layer(TRANSPOSED, NO_LAYER, input, other)
    return Layer(FROM_THE_LEFT, NO_LAYER, other, input) if input.dim() == 2 and other.dim() >= 3 else None


def _einsum(equation: str, one: Tensor, other: Tensor) -> Layer | None:
    found = terms_of(equation, one, other)
    if found is None:
        return None
    terms, inputs, weight = found
    if not weight.numel():
        return None
    return Layer(rule_for(terms, weight), NO_LAYER, inputs, weight)


def _prelu(input: Tensor, weight: Tensor) -> Layer | None:
    if weight.dim() != 1:
        return None
    return Layer.of(nn.PReLU(weight.numel(), device="meta"), input, weight)


def _layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Layer:
    return Layer.of(nn.LayerNorm(normalized_shape, eps, elementwise_affine=False), input, weight, bias)


def _rms_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Layer:
    return Layer.of(nn.RMSNorm(normalized_shape, eps, elementwise_affine=False), input, weight)


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Layer:
    return Layer.of(nn.GroupNorm(num_groups, input.shape[1], eps, affine=False), input, weight, bias)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Layer | None:
    """By given statistics: a layer's own forward pass has been given those of its batch as constants."""
    if training or running_mean is None or running_var is None:
        return None
    module = nn.BatchNorm1d(input.shape[1], eps, affine=False, track_running_stats=False)
    constants = running_mean.detach(), running_var.detach()
    return Layer(RULES[nn.BatchNorm1d], module, input, weight, bias, constants)


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Layer | None:
    if max_norm is not None:
        return None  # which changes the weight
    rows, width = weight.shape
    module = nn.Embedding(rows, width, padding_idx, scale_grad_by_freq=scale_grad_by_freq, device="meta")
    return Layer.of(module, input, weight)


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Layer | None:
    """Bags of one size, [N, size]; of many sizes they have no samples' dimension."""
    if (
        input.dim() != 2
        or mode == "max"
        or max_norm is not None
        or scale_grad_by_freq
        or per_sample_weights is not None
    ):
        return None
    rule = Rule(partial(_bags, len(weight), mode == "mean", padding_idx), events=lambda module, x: (1, 1))
    return Layer(rule, NO_LAYER, input, weight)


def _bags(entries: int, mean: bool, padding: int | None, seen: Seen) -> list[Block]:
    """y = Σ_l weight[x_l], or their mean, without those that are padding: [N, T, size]."""
    shares = torch.ones_like(seen.inputs, dtype=seen.gradient.dtype)
    if padding is not None:
        shares = shares.masked_fill(seen.inputs == padding % entries, 0)
    if mean:
        shares = shares / shares.sum(2, keepdim=True).clamp_min(1)
    left = seen.gradient.unsqueeze(2) * shares.unsqueeze(3)
    return [Lookup(seen.names["weight"], entries, seen.inputs.flatten(1), left.flatten(1, 2), seen.max_bytes)]


def _getitem(input: Tensor, index: Any) -> Layer | None:
    is_index = isinstance(index, Tensor) and index.dtype in (torch.int32, torch.int64)
    if not is_index or input.dim() != 2:
        return None
    return _embedding(index.remainder(len(input)), input)  # -1 is the last one


def _convolution(kind: Any) -> "Seeing":
    def see(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Layer:
        out, width, *kernel = weight.shape
        module = kind(
            width * groups, out, tuple(kernel), _plain(stride), _plain(padding), _plain(dilation), groups,
            bias=False, device="meta",
        )  # fmt: skip
        return Layer.of(module, input, weight, bias)

    return see


def _plain(size: Any) -> Any:
    """Torch takes [2] for 2."""
    return size if isinstance(size, int | str) else tuple(size) if len(size) > 1 else size[0]


Seeing = Callable[..., Layer | None]

# by their names: functions, methods and operators that do the same share one
LAYERS: dict[str, Seeing] = {
    "linear": _linear,
    "addmm": _addmm,
    "matmul": _matmul,
    "mm": _matmul,
    "einsum": _einsum,
    "prelu": _prelu,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
    "__getitem__": _getitem,
    "conv1d": _convolution(nn.Conv1d),
    "conv2d": _convolution(nn.Conv2d),
    "conv3d": _convolution(nn.Conv3d),
}
