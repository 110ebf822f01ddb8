"""Uniform sampling: random samples are trained on and remembered, whatever their class."""

import torch
from torch import Tensor, nn

from ..draws import random_places
from ..gradients.calling import LossFn
from ..memory import ReplayMemory, Samples
from .coreset import Coreset


class Uniform(Coreset):
    """Every sample has the same chance."""

    def choose(self, samples: Samples, k: int) -> Tensor:
        return random_places(len(samples), k, self.generator, self.device)


class RandomMemory(Uniform):
    """Uniform's memory for methods that replay in another way: λ and adaptation mean nothing to them."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        k: int | None = None,
        replay: int = 10,
        candidates: int = 1000,
        loss_fn: LossFn | None = None,
        lr_decay: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            model,
            optimizer,
            memory,
            k=k,
            replay=replay,
            candidates=candidates,
            loss_fn=loss_fn,
            lr_decay=lr_decay,
            generator=generator,
        )
