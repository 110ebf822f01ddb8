"""Uniform sampling: random samples are trained on and remembered, whatever their class."""

import torch
from torch import Tensor

from ..memory import Samples
from .coreset import Coreset


class Uniform(Coreset):
    """Every sample has the same chance."""

    def choose(self, samples: Samples, k: int) -> Tensor:
        chance = torch.rand(len(samples), generator=self.generator, device=self.device)
        return chance.topk(min(k, len(samples))).indices
