"""Bilevel coresets (Borsos et al. 2020): keep what a model trained on it alone would do well everywhere with."""

from typing import Any

import torch
from torch import Tensor, nn

from ..memory import ReplayMemory, Samples
from ..selection.bilevel import bilevel
from ..selection.kernels import ntk, rbf
from .coreset import Coreset
from .features import features


class Bilevel(Coreset):
    """Greedy forward selection on a kernel: the network's tangent kernel, or an RBF on its embeddings."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        kernel: str = "ntk",
        ridge: float = 0.01,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, memory, **shared)
        if kernel not in ("ntk", "rbf"):
            raise ValueError(f"kernel must be 'ntk' or 'rbf', got {kernel!r}")
        self.kernel, self.ridge = kernel, ridge

    def choose(self, samples: Samples, k: int) -> Tensor:
        if self.kernel == "rbf":
            kernel = rbf(features(self.model, samples.inputs))
        else:
            classes = samples.targets.unique().tolist()
            kernel = ntk(self.model, samples.inputs, classes)
        return bilevel(kernel, samples.targets, k, ridge=self.ridge, generator=self.generator).picked
