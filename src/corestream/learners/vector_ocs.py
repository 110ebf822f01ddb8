"""Input-OCS and Feat-OCS: the criteria of OCS on raw inputs or on features, in the place of gradients (Table 3)."""

import torch
from torch import Tensor

from ..gradients.calling import Inputs
from ..gradients.restoring import in_mode, unchanged_buffers
from ..memory import Samples
from ..selection.criteria import vector_criteria
from ..selection.scores import weigh
from .drawn import Drawn
from .features import features, raw_inputs
from .ocs import OCS
from .step import Step


class InputOCS(OCS):
    """S, V and A are cosines of the inputs themselves."""

    def _take_step(self, inputs: Inputs, targets: Tensor, drawn: Drawn) -> tuple[Step, Tensor]:
        old = drawn.reference
        criteria = vector_criteria(self._vectors(inputs), None if old is None else self._vectors(old.inputs))
        scores = weigh(criteria, self.tau, self.weights)
        finite = scores.total > -torch.inf  # nor are squares too large for their type
        self._spoil(~finite.any())
        chance = torch.rand(len(targets), generator=self.generator, device=self.device)
        picked = self._first(scores.total, finite, chance)
        loss = self._train_on(picked, inputs, targets, drawn.replay_batch)
        return Step(self, loss, picked, scores), picked

    def _vectors(self, inputs: Inputs) -> Tensor:
        return raw_inputs(inputs)

    def _worth_of_kept(self) -> Tensor:
        return self._worth_task_by_task()

    def _worth(self, samples: Samples) -> Tensor:
        return weigh(vector_criteria(self._vectors(samples.inputs)), 0.0).total


class FeatOCS(InputOCS):
    """S, V and A are cosines of the model's embeddings."""

    def _vectors(self, inputs: Inputs) -> Tensor:
        with in_mode(self.model, self.score_mode), unchanged_buffers(self.model):
            return features(self.model, inputs)
