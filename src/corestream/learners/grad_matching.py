"""Gradient matching (Campbell and Broderick 2019): keep what has the mean gradient of all."""

from typing import Any

import torch
from torch import Tensor, nn

from ..gradients import PerSampleGradients, per_sample_gradients
from ..memory import ReplayMemory, Samples
from ..selection.grad_matching import grad_matching
from ..selection.kernels import gradient_gram
from .coreset import Coreset
from .features import last_linear


class GradMatching(Coreset):
    """min ‖ ḡ − 1/k · Σ g_n ‖, greedily, over the gradients of the whole model or of its last layer.

    With `unit` each has length 1: then what is kept follows the classes' shares, where a rare class's large gradients would count for more.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        last_layer: bool = False,
        unit: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, memory, **shared)
        if not isinstance(unit, bool):
            raise ValueError(f"unit must be True or False, got {unit!r}")
        if last_layer and not any(isinstance(module, nn.Linear) for module in self.model.modules()):
            raise ValueError("last_layer=True: the model has no Linear layer")
        self.last_layer, self.unit = last_layer, unit

    def choose(self, samples: Samples, k: int) -> Tensor:
        matched = [self._output_layer(samples)] if self.last_layer else None

        def gradients(part: slice) -> PerSampleGradients:
            some = samples[part]
            batch = some.inputs, some.targets
            return per_sample_gradients(self.model, self.loss_fn, batch, parameters=matched)

        gram = gradient_gram(gradients, len(samples))
        if self.unit:
            lengths = gram.diagonal().clamp_min(torch.finfo(gram.dtype).tiny).sqrt()
            gram = gram / lengths[:, None] / lengths
        return grad_matching(gram, k)

    def _output_layer(self, samples: Samples) -> nn.Module:
        """The Linear that is called last: the order in which layers were registered says nothing."""
        found = last_linear(self.model, samples.inputs)
        if found is None:
            raise ValueError("last_layer=True: the model calls no Linear layer; give last_layer=False")
        return found[0]
