"""Uniform + OCS: random samples are trained on, and OCS chooses what is remembered (appendix)."""

import torch
from torch import Tensor

from ..gradients.calling import Inputs
from ..selection.scores import score, top
from .drawn import Drawn
from .ocs import OCS
from .step import Step


class UniformOCS(OCS):
    """The update is on k random samples of the batch; the k that OCS would pick are the memory's candidates."""

    def _take_step(self, inputs: Inputs, targets: Tensor, drawn: Drawn) -> tuple[Step, Tensor]:
        old = drawn.reference
        scores = score(
            self.model,
            self.loss_fn,
            (inputs, targets),
            None if old is None else (old.inputs, old.targets),
            tau=self.tau,
            weights=self.weights,
            parameters=None if self.selected is None else list(self._wanted),
            mode=self.score_mode,
            max_bytes=self.max_bytes,
        )
        finite = scores.total > -torch.inf
        chance = torch.rand(len(targets), generator=self.generator, device=self.device)
        picked = top(chance.masked_fill(~finite, -torch.inf), self.k)
        loss = self._train_on(picked, inputs, targets, drawn.replay_batch)
        remembered = self._first(scores.total, finite, chance)
        return Step(self, loss, picked, scores), remembered
