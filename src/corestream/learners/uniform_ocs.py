"""Uniform + OCS: random samples are trained on, and OCS chooses what is remembered (appendix)."""

import torch
from torch import Tensor

from ..gradients.calling import Inputs, map_inputs
from ..memory import Samples
from ..selection.scores import score, top
from .base import Step, weighted_mean
from .ocs import OCS


class SeparateOCS(OCS):
    """OCS whose update is an ordinary pass of its own, whatever was looked at to choose."""

    def _train_on(
        self,
        picked: Tensor,
        inputs: Inputs,
        targets: Tensor,
        reference: Samples | None,
        replayed: Samples | Tensor | None,
    ) -> Tensor:
        """One step down the mean loss of the picked + λ · that of the replay batch (Eq. 9)."""
        rows = picked.where(picked >= 0, picked[0])
        losses = self._losses(map_inputs(lambda column: column[rows], inputs), targets[rows])
        loss = weighted_mean(losses, picked >= 0)
        if replayed is not None and reference is not None:
            again = replayed if isinstance(replayed, Samples) else reference[replayed]
            loss = loss + self.lam * self._losses(again.inputs, again.targets).mean()
        self._spoil(~loss.detach().isfinite())
        self._descend(loss)
        return loss


class UniformOCS(SeparateOCS):
    """The update is on k random samples of the batch; the k that OCS would pick are the memory's candidates."""

    def _learn(self, inputs: Inputs, targets: Tensor, ids: Tensor | None) -> Step:
        reference, replayed = self._draw()
        scores = score(
            self.model,
            self.loss_fn,
            (inputs, targets),
            None if reference is None else (reference.inputs, reference.targets),
            tau=self.tau,
            weights=self.weights,
            parameters=self.selected,
            mode=self.score_mode,
            max_bytes=self.max_bytes,
        )
        chance = torch.rand(len(targets), generator=self.generator, device=self.device)
        picked = chance.topk(min(self.k, len(targets))).indices
        loss = self._train_on(picked, inputs, targets, reference, replayed)
        remembered = top(torch.where(self._steps < self._warm, chance, scores.total), self.k)
        self._remember(inputs, targets, ids, Step(self, loss, remembered))
        self._steps += 1
        return Step(self, loss, picked, scores)
