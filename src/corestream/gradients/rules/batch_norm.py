"""BatchNorm couples the samples of a batch; while gradients are taken, its batch statistics are constants.

This is what makes the gradient of some samples the weighted sum of theirs. It is not the training gradient.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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


def statistics(x: Tensor, eps: float) -> Statistics:
    """The mean and biased variance of the batch, as constants."""
    with torch.no_grad():
        wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
        if wide.is_cuda and eps >= CUDNN_EPS and _cudnn_takes(wide):
            # five times as fast as torch's own kernels, which it would choose without a weight; its output is not used
            weight = wide.new_empty(wide.shape[1])
            _, mean, inverse_root, _ = torch.cudnn_batch_norm(
                wide.contiguous(), weight, weight, None, None, True, 0.0, eps
            )
        else:
            _, mean, inverse_root = torch.native_batch_norm(wide, None, None, None, None, True, 0.0, eps)
        return mean, _variance(inverse_root, eps)


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
        self.statistics = statistics(input, module.eps)
        return _by_constants(input, self.statistics, module.weight, module.bias, module.eps)


class OwnFrozenForward:
    """The same for a layer whose forward pass is its own: wherever it normalises by a batch, that batch's statistics are constants."""

    def __init__(self, module: AnyBatchNorm) -> None:
        self._forward = module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _ConstantStatistics():
            return self._forward(*args, **kwargs)


class _ConstantStatistics(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (_normalize if func is F.batch_norm else func)(*args, **(kwargs or {}))


def _normalize(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """F.batch_norm, which updates no running statistics."""
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _by_constants(input, statistics(input, eps), weight, bias, eps)


def _by_constants(
    input: Tensor, constants: Statistics, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    mean, variance = constants
    weight, bias = (p if p is None else p.to(mean.dtype) for p in (weight, bias))
    return F.batch_norm(input, mean, variance, weight, bias, training=False, eps=eps)


@register(*BATCH_NORMS, events=channel_events)
def batch_norm(seen: Seen) -> list[Block]:
    module = seen.module
    assert isinstance(module, AnyBatchNorm)
    constants = seen.statistics or (module.running_mean, module.running_var)
    flat = seen.inputs.flatten(0, 1)
    mean, variance = (constant.to(flat.dtype) for constant in constants if constant is not None)
    normalized = F.batch_norm(flat, mean, variance, training=False, eps=module.eps)
    return channel_rows(seen, normalized.view_as(seen.inputs))
