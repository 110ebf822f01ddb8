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
Statistics = tuple[Tensor, Tensor]  # mean and biased variance of each channel


def uses_batch_statistics(module: nn.Module) -> bool:
    """Whether the layer would normalise by its batch: train mode, or no running statistics."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and (
        module.training or module.running_mean is None
    )


def is_batch_coupled(model: nn.Module) -> bool:
    """Whether a layer makes samples depend on each other. What a model does by itself is seen in its gradients alone."""
    return any(
        uses_batch_statistics(module) or getattr(module, "scale_grad_by_freq", False)
        for module in model.modules()
    )


def statistics(module: AnyBatchNorm, x: Tensor) -> Statistics:
    """The mean and biased variance of the batch, as constants."""
    with torch.no_grad():
        wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
        if wide.is_cuda and module.eps >= CUDNN_EPS and _cudnn_takes(wide):
            # five times as fast as torch's own kernels, which it would choose without a weight; its output is not used
            weight = wide.new_empty(wide.shape[1])
            _, mean, inverse_root, _ = torch.cudnn_batch_norm(
                wide.contiguous(), weight, weight, None, None, True, 0.0, module.eps
            )
        else:
            _, mean, inverse_root = torch.native_batch_norm(
                wide, None, None, None, None, True, 0.0, module.eps
            )
        return mean, _variance(inverse_root, module.eps)


@fusible
def _variance(inverse_root: Tensor, eps: float) -> Tensor:
    return inverse_root.square().reciprocal() - eps


def _cudnn_takes(x: Tensor) -> bool:
    """As torch itself decides."""
    fits = x.dim() >= 3 and x.shape[0] <= 880_801 and 0 < x.numel() < 2**31 - 1
    return fits and torch.version.hip is None and torch.backends.cudnn.is_acceptable(x)


class FrozenForward:
    """The layer's forward pass with its batch's statistics as constants, which it remembers; it updates nothing."""

    def __init__(self, module: AnyBatchNorm) -> None:
        self._module = module
        self.statistics: Statistics | None = None  # of the last call

    def __call__(self, input: Tensor) -> Tensor:
        module = self._module
        module._check_input_dim(input)
        mean, variance = self.statistics = statistics(module, input)
        weight, bias = (p if p is None else p.to(mean.dtype) for p in (module.weight, module.bias))
        return F.batch_norm(input, mean, variance, weight, bias, training=False, eps=module.eps)


class OwnFrozenForward:
    """The same for a layer with a forward pass of its own: it finds the statistics of its input where it has its running ones."""

    def __init__(self, module: AnyBatchNorm) -> None:
        self._module, self._forward = module, module.forward

    def __call__(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        module = self._module
        if input.dim() < 2 or input.shape[1] != module.num_features:
            return self._forward(input, *args, **kwargs)
        kind = input.dtype if module.weight is None else module.weight.dtype
        held = module.running_mean, module.running_var, module.training
        mean, variance = statistics(module, input)
        module.running_mean, module.running_var, module.training = mean.to(kind), variance.to(kind), False
        try:
            return self._forward(input, *args, **kwargs)
        finally:
            module.running_mean, module.running_var, module.training = held


@register(*BATCH_NORMS, events=channel_events)
def batch_norm(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, AnyBatchNorm)
    constants = seen.statistics or (module.running_mean, module.running_var)
    flat = seen.inputs.flatten(0, 1)
    mean, variance = (constant.to(flat.dtype) for constant in constants if constant is not None)
    normalized = F.batch_norm(flat, mean, variance, training=False, eps=module.eps)
    return channel_rows(seen, normalized.view_as(seen.inputs))
