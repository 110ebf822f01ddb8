"""LayerNorm, RMSNorm, GroupNorm, InstanceNorm: y = weight · x̂ + bias, with x̂ made from one sample alone.

The parameters are few, so their rows are written out: Σ_t b_nt ∘ x̂_nt for the weight, Σ_t b_nt for the bias.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ...fusing import fusible
from ..blocks import Block, Rows
from .rule import Seen, register


def _trailing(module: nn.Module, x: Tensor) -> tuple[int, int]:
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    return len(module.normalized_shape), len(module.normalized_shape)


@register(nn.LayerNorm, events=_trailing)
def layer_norm(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, nn.LayerNorm)
    normalized = F.layer_norm(seen.inputs, module.normalized_shape, None, None, module.eps)
    return affine_rows(seen, normalized, over=(1,))


@register(nn.RMSNorm, events=_trailing)
def rms_norm(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, nn.RMSNorm)
    normalized = F.rms_norm(seen.inputs, module.normalized_shape, None, module.eps)
    return affine_rows(seen, normalized, over=(1,))


def channel_events(module: nn.Module, x: Tensor) -> tuple[int, int]:
    """[N, C, *space]: everything after the first dimension belongs to the sample."""
    return x.dim() - 1, x.dim() - 1


@register(nn.GroupNorm, events=channel_events)
def group_norm(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, nn.GroupNorm)
    flat = seen.inputs.flatten(0, 1)
    normalized = F.group_norm(flat, module.num_groups, None, None, module.eps).view_as(seen.inputs)
    return channel_rows(seen, normalized)


def _instance_events(module: nn.Module, x: Tensor) -> tuple[int, int]:
    """Torch takes [C, *space] for one sample: then no dimension is the samples'."""
    assert isinstance(module, nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d)
    unbatched = x.dim() == module._get_no_batch_dim()
    return (x.dim(), x.dim()) if unbatched else channel_events(module, x)


@register(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, events=_instance_events)
def instance_norm(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d)
    flat = seen.inputs.flatten(0, 1)
    if module.training or not module.track_running_stats:
        normalized = F.instance_norm(flat, eps=module.eps)
    else:
        assert module.running_mean is not None
        assert module.running_var is not None
        mean, variance = module.running_mean.to(flat.dtype), module.running_var.to(flat.dtype)
        normalized = F.batch_norm(flat, mean, variance, eps=module.eps)
    return channel_rows(seen, normalized.view_as(seen.inputs))


def channel_rows(seen: Seen, normalized: Tensor) -> list[Block]:
    """For [N, T, C, *space]: one weight a channel."""
    return affine_rows(seen, normalized, over=(1, *range(3, normalized.dim())))


def affine_rows(seen: Seen, normalized: Tensor, over: tuple[int, ...]) -> list[Block]:
    weight, bias = seen.names.get("weight"), seen.names.get("bias")
    if weight is not None and bias is not None:
        for_weight, for_bias = _both_sums(seen.gradient, normalized, over)
        return [Rows(weight, for_weight), Rows(bias, for_bias)]
    if weight is not None:
        return [Rows(weight, (seen.gradient * normalized).sum(over))]
    return [Rows(bias, seen.gradient.sum(over))] if bias is not None else []


@fusible
def _both_sums(gradient: Tensor, normalized: Tensor, over: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return (gradient * normalized).sum(over), gradient.sum(over)
