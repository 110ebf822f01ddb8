"""Bilevel coresets (Borsos et al. 2020): keep what a model trained on it alone would do well everywhere with."""

from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_positive
from ..gradients.calling import Inputs, call
from ..gradients.capture import DEFAULT_MAX_BYTES
from ..gradients.restoring import in_mode, unchanged_buffers
from ..memory import ReplayMemory, Samples
from ..selection.bilevel import RIDGE, bilevel, check_inner
from ..selection.kernels import ntk, rbf
from .coreset import Coreset
from .features import features
from .step import Step


def check_classes(targets: Tensor) -> None:
    if targets.dim() != 1 or targets.is_floating_point():
        raise ValueError(
            f"Bilevel's choice needs classes, one a sample; got targets of {targets.dtype} and shape {list(targets.shape)}"
        )


def check_outputs(model: nn.Module, inputs: Inputs, targets: Tensor) -> None:
    """The network's kernel is of an output for each class."""
    with torch.no_grad(), in_mode(model, "eval"), unchanged_buffers(model):
        outputs = call(model, inputs)
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or outputs.shape[1] < 2:
        got = list(outputs.shape) if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
        raise ValueError(
            f"Bilevel's choice needs outputs of shape [{len(targets)}, classes], got {got}: let the model return those, or choose "
            "another way"
        )


def tangent_coreset(
    model: nn.Module,
    samples: Samples,
    k: int,
    *,
    ridge: float = RIDGE,
    inner: str = "sum",
    generator: torch.Generator | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Tensor:
    """k samples, best first, from which a model in the network's tangent kernel learns the others best."""
    targets = samples.targets
    check_classes(targets)
    kernel = ntk(model, samples.inputs, targets.long().unique().tolist(), max_bytes=max_bytes)
    return bilevel(kernel, targets, k, ridge=ridge, inner=inner, generator=generator).picked


class Bilevel(Coreset):
    """Greedy forward selection on a kernel: the network's tangent kernel, or an RBF on its embeddings."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        kernel: str = "ntk",
        ridge: float = RIDGE,
        inner: str = "sum",
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, memory, **shared)
        if kernel not in ("ntk", "rbf"):
            raise ValueError(f"kernel must be 'ntk' or 'rbf', got {kernel!r}")
        check_positive(ridge=ridge)
        check_inner(inner)
        self.kernel, self.ridge, self.inner = kernel, ridge, inner

    def _learn(self, inputs: Inputs, targets: Tensor, ids: Tensor | None) -> Step:
        check_classes(targets)  # now, and not only when a task ends
        if self._kind is None and self.kernel == "ntk":
            check_outputs(self.model, inputs, targets)
        return super()._learn(inputs, targets, ids)

    def choose(self, samples: Samples, k: int) -> Tensor:
        if self.kernel == "ntk":
            return tangent_coreset(self.model, samples, k, **self._problem)
        kernel = rbf(features(self.model, samples.inputs))
        return bilevel(kernel, samples.targets, k, **self._problem).picked

    @property
    def _problem(self) -> dict[str, Any]:
        return {"ridge": self.ridge, "inner": self.inner, "generator": self.generator}
