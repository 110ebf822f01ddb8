"""Experience replay with a reservoir (Chaudhry et al. 2019, "On tiny episodic memories")."""

from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_counts
from ..gradients.calling import join_inputs
from ..memory import ReplayMemory, Samples
from .base import check_memory, weighted_mean
from .finetune import Finetune


class ERReservoir(Finetune):
    """The replay batch joins the stream batch in one mean loss; the memory is a uniform sample of all that passed.

    Give it a memory with policy="reservoir".
    """

    memory: ReplayMemory

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        replay: int = 10,
        **shared: Any,
    ) -> None:
        super().__init__(model, optimizer, **shared)
        check_counts(replay=replay)
        check_memory(memory)
        memory.require_reservoir()
        self.memory, self.replay = memory, replay

    def _objective(self, samples: Samples, valid: Tensor) -> Tensor:
        if not len(self.memory):
            return super()._objective(samples, valid)
        replayed = self.memory.sample(self.replay, self.generator)
        both = join_inputs([samples.inputs, replayed.inputs])
        losses = self._losses(both, torch.cat([samples.targets, replayed.targets]))
        return weighted_mean(losses, torch.cat([valid, valid.new_ones(len(replayed))]))

    def _remember(self, samples: Samples, valid: Tensor) -> None:
        self.memory.add(samples, self.generator)
