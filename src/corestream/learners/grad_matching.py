"""Gradient matching (Campbell and Broderick 2019): keep what has the mean gradient of all."""

from typing import Any

import torch
from torch import Tensor, nn

from ..gradients import per_sample_gradients
from ..memory import ReplayMemory, Samples
from ..selection.grad_matching import grad_matching
from .coreset import Coreset


class GradMatching(Coreset):
    """min ‖ ḡ − 1/k · Σ g_n ‖, greedily, over the gradients of the whole model or of its last layer."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        last_layer: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, memory, **shared)
        self.matched = [last_linear(self.model)] if last_layer else None

    def choose(self, samples: Samples, k: int) -> Tensor:
        batch = (samples.inputs, samples.targets)
        grads = per_sample_gradients(self.model, self.loss_fn, batch, parameters=self.matched)
        usable = grads.finite[:, None] & grads.finite
        return grad_matching(torch.where(usable, grads.gram(), torch.nan), k)


def last_linear(model: nn.Module) -> nn.Module:
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise ValueError("last_layer=True: the model has no Linear layer")
    return linears[-1]
