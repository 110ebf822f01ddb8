"""What a step takes from the memory."""

from typing import NamedTuple

from torch import Tensor

from ..memory import Samples


class Drawn(NamedTuple):
    """What a step takes from the memory: the reference, and the replay batch, which may be told by its positions in the reference."""

    reference: Samples | None = None
    replayed: Samples | Tensor | None = None

    @property
    def replay_batch(self) -> Samples | None:
        if not isinstance(self.replayed, Tensor):
            return self.replayed
        assert self.reference is not None
        return self.reference[self.replayed]
