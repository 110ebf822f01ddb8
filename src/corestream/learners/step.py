"""What a step of a learner tells."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from ..selection.scores import Scores

if TYPE_CHECKING:
    from .base import Learner


class Step:
    """What one `observe` did: the loss it took a step on, the picked positions (None: the whole batch) and the scores behind them.

    The loss may come as a function, which is called only when somebody asks.
    """

    def __init__(
        self,
        learner: "Learner",
        loss: Tensor | Callable[[], Tensor],
        picked: Tensor | None = None,
        scores: Scores | None = None,
    ) -> None:
        self._learner, self._loss = learner, loss.detach() if isinstance(loss, Tensor) else loss
        self.picked, self.scores = picked, scores

    def __repr__(self) -> str:
        """Without a look at values, for which a card would be waited for."""
        picked = "the whole batch" if self.picked is None else f"{len(self.picked)} picked"
        return f"Step({picked}, {'no' if self.scores is None else 'with'} scores)"

    @property
    def loss(self) -> Tensor:
        """The loss, a tensor with no dimension. Reading it on CUDA waits for the device and raises what was found there."""
        self._learner.check()
        return self._loss if isinstance(self._loss, Tensor) else self._loss()
