"""BatchNorm couples the samples of a batch; while gradients are taken, its batch statistics are constants.

This is what makes the gradient of some samples the weighted sum of theirs. It is not the training gradient.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...fusing import fusible
from ..blocks import Block
from .normalization import channel_events, channel_rows
from .rule import Seen, register

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CUDNN_EPS = 1e-5  # the smallest that every cuDNN takes
AnyBatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def uses_batch_statistics(module: nn.Module) -> bool:
    """Whether the layer would normalise by its batch: train mode, or no running statistics."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and (
        module.training or module.running_mean is None
    )


def is_batch_coupled(model: nn.Module) -> bool:
    return any(uses_batch_statistics(module) for module in model.modules())


def statistics(module: AnyBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and biased variance to normalise `x` by: the batch's own, as constants, or the running ones."""
    if not uses_batch_statistics(module):
        assert module.running_mean is not None
        assert module.running_var is not None
        return module.running_mean, module.running_var
    with torch.no_grad():
        wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
        _, mean, inverse_root = _normalized(wide, module.eps)
        return mean, _variance(inverse_root, module.eps)


@fusible
def _variance(inverse_root: Tensor, eps: float) -> Tensor:
    return inverse_root.square().reciprocal() - eps


def _normalized(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`x` by its batch's own statistics, their mean, and 1 / √(variance + eps), all from one kernel."""
    if x.is_cuda and eps >= CUDNN_EPS and _cudnn_takes(x):
        # five times as fast as torch's own kernels, which it would choose without a weight
        ones, zeros = x.new_ones(x.shape[1]), x.new_zeros(x.shape[1])
        return torch.cudnn_batch_norm(x.contiguous(), ones, zeros, None, None, True, 0.0, eps)[:3]
    return torch.native_batch_norm(x, None, None, None, None, True, 0.0, eps)


def _cudnn_takes(x: Tensor) -> bool:
    """As torch itself decides."""
    fits = x.dim() >= 3 and x.shape[0] <= 880_801 and 0 < x.numel() < 2**31 - 1
    return fits and torch.version.hip is None and torch.backends.cudnn.is_acceptable(x)


def frozen_forward(module: AnyBatchNorm) -> Any:
    """The layer's forward pass with its batch's statistics as constants; it updates nothing."""

    def forward(x: Tensor) -> Tensor:
        module._check_input_dim(x)
        mean, variance = statistics(module, x)
        weight, bias = (p if p is None else p.to(mean.dtype) for p in (module.weight, module.bias))
        return F.batch_norm(x, mean, variance, weight, bias, training=False, eps=module.eps)

    return forward


@register(*BATCH_NORMS, events=channel_events)
def batch_norm(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, AnyBatchNorm)
    flat = seen.inputs.flatten(0, 1)
    if uses_batch_statistics(module):
        normalized = _normalized(flat, module.eps)[0]
    else:
        mean, variance = (constant.to(flat.dtype) for constant in statistics(module, flat))
        normalized = F.batch_norm(flat, mean, variance, training=False, eps=module.eps)
    return channel_rows(seen, normalized.view_as(seen.inputs))
