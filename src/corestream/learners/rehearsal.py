"""The skeleton of the rehearsal methods: each step also goes down the loss of a replay batch."""

import torch
from torch import Tensor, nn

from ..counts import check_counts, check_not_negative
from ..gradients import is_batch_coupled
from ..gradients.calling import Inputs, LossFn, join_inputs
from ..gradients.due import is_due
from ..gradients.independence import look
from ..gradients.restoring import in_mode
from ..memory import ReplayMemory, Samples
from .base import check_memory, weighted_mean
from .finetune import Finetune


class Rehearsal(Finetune):
    """One step is down the mean loss of the batch + λ · the mean loss of a replay batch (Eq. 9).

    `adapt=True` is current-task adaptation: the method's `choose` picks the k samples of each batch to train on. They alone may enter the
    memory; with `adapt="training"` all samples may.
    """

    memory: ReplayMemory
    _asked, _alone = 0, True  # whether samples depend on each other, and how often that was asked

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        memory: ReplayMemory,
        *,
        k: int | None = None,
        lam: float = 1.0,
        replay: int = 10,
        adapt: bool | str = False,
        loss_fn: LossFn | None = None,
        lr_decay: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(model, optimizer, k=k, loss_fn=loss_fn, lr_decay=lr_decay, generator=generator)
        check_counts(replay=replay)
        check_not_negative(lam=lam)
        if adapt not in (True, False, "training"):
            raise ValueError(f"adapt must be True, False or 'training', got {adapt!r}")
        if adapt and k is None:
            raise ValueError(f"adapt={adapt!r} needs k, the number of samples of each batch to train on")
        check_memory(memory)
        self.memory, self.lam, self.replay, self.adapt = memory, lam, replay, adapt

    def choose(self, samples: Samples, k: int) -> Tensor:
        """The k samples that stand best for all of them, best first, −1 where there are fewer; in eval mode."""
        raise NotImplementedError(
            f"{type(self).__name__} needs a method choose(self, samples, k) that returns the places of k samples, best first"
        )

    @property
    def _remembers_all(self) -> bool:
        return self.adapt == "training"

    def _pick(self, samples: Samples) -> Tensor | None:
        if not self.adapt or self.k is None or self.k >= len(samples):
            return super()._pick(samples)
        with in_mode(self.model, "eval"):
            chosen = self.choose(samples, self.k)
        return chosen if len(chosen) else chosen.new_full((1,), -1)

    def _objective(self, samples: Samples, valid: Tensor) -> Tensor:
        replayed = self._replayed(samples)
        if replayed is None:
            return super()._objective(samples, valid)
        both = join_inputs([samples.inputs, replayed.inputs]), torch.cat([samples.targets, replayed.targets])
        if self._stand_alone(*both):
            losses = self._losses(*both)
            now, before = losses[: len(samples)], losses[len(samples) :]
        else:
            now = self._losses(samples.inputs, samples.targets)
            before = self._losses(replayed.inputs, replayed.targets)
        return weighted_mean(now, valid) + self.lam * before.mean()

    def _stand_alone(self, inputs: Inputs, targets: Tensor) -> bool:
        """Whether one pass over all does for each what a pass without the others would. A card, which a look would have to wait for, is
        not asked about losses and layers of the user's own."""
        if is_batch_coupled(self.model):
            return False
        if self._alone and self.device.type != "cuda" and is_due(self._asked, self.device):
            self._alone = look(self.model, self.loss_fn, inputs, targets)
        self._asked += 1
        return self._alone

    def _replayed(self, samples: Samples) -> Samples | None:
        """The replay batch that goes with these samples."""
        return self.memory.sample(self.replay, self.generator) if len(self.memory) else None
