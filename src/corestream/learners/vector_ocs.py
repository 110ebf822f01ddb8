"""Input-OCS and Feat-OCS: the criteria of OCS on raw inputs or on features, in the place of gradients (Table 3)."""

import torch
from torch import Tensor

from ..gradients.calling import Inputs, map_inputs
from ..memory import Samples
from ..selection.criteria import vector_criteria
from ..selection.scores import in_mode, top, weigh
from .base import Step, weighted_mean
from .features import features, raw_inputs
from .ocs import OCS


class InputOCS(OCS):
    """S, V and A are cosines of the inputs themselves."""

    def _learn(self, inputs: Inputs, targets: Tensor, ids: Tensor | None) -> Step:
        reference, replayed = self._draw()
        criteria = vector_criteria(
            self._vectors(inputs), None if reference is None else self._vectors(reference.inputs)
        )
        scores = weigh(criteria, self.tau, self.weights)
        self._spoil(~criteria.finite.any())
        chance = torch.rand(len(targets), generator=self.generator, device=self.device)
        chance = torch.where(criteria.finite, chance, -torch.inf)
        picked = top(torch.where(self._steps < self._warm, chance, scores.total), self.k)
        rows = picked.where(picked >= 0, picked[0])
        losses = self._losses(map_inputs(lambda column: column[rows], inputs), targets[rows])
        loss = weighted_mean(losses, picked >= 0)
        if replayed is not None and reference is not None:
            again = replayed if isinstance(replayed, Samples) else reference[replayed]
            loss = loss + self.lam * self._losses(again.inputs, again.targets).mean()
        self._spoil(~loss.detach().isfinite())
        self._descend(loss)
        step = Step(self, loss, picked, scores)
        self._remember(inputs, targets, ids, step)
        self._steps += 1
        return step

    def _vectors(self, inputs: Inputs) -> Tensor:
        return raw_inputs(inputs)

    def _worth(self, samples: Samples) -> Tensor:
        return weigh(vector_criteria(self._vectors(samples.inputs)), 0.0).total


class FeatOCS(InputOCS):
    """S, V and A are cosines of the model's embeddings."""

    def _vectors(self, inputs: Inputs) -> Tensor:
        with in_mode(self.model, self.score_mode):
            return features(self.model, inputs)
