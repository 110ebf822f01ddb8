"""A uniform sample of a stream of unknown length, in place and without a look at any value."""

import torch
from torch import Tensor

from ..gradients.calling import leaves
from .samples import Samples

EMPTY, NEVER = -1.0, -2.0


class Reservoir:
    """Each sample that passes gets a random key; the `capacity` largest keys stay. That is a uniform draw without replacement.

    All shapes are fixed and nothing waits for the device, so that a step that adds to it can be captured in a CUDA graph. One slot
    more than the capacity takes what is not kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._slots: Samples | None = None
        self.keys = torch.empty(0)

    @property
    def slots(self) -> Samples:
        """The storage: `capacity` slots, of which those with a key of at least 0 are filled, and the spare one."""
        if self._slots is None:
            raise LookupError("the reservoir is empty")
        return self._slots

    def clear(self) -> None:
        self.keys.fill_(EMPTY)

    def add(self, samples: Samples, valid: Tensor, generator: torch.Generator | None) -> None:
        """Let the samples pass by; those where `valid` is false are never kept."""
        slots = self._allocate(samples)
        keys = torch.rand(len(samples), generator=generator, device=valid.device)
        keys = torch.where(valid, keys, NEVER)
        contested = min(len(samples), self.capacity)
        lowest = self.keys.topk(contested, largest=False)
        # of the lowest keys kept and the new ones, the best `contested` go on
        rivals = torch.cat([lowest.values, keys])
        stays = torch.zeros_like(rivals, dtype=torch.bool).scatter_(0, rivals.topk(contested).indices, True)
        old, new = stays[:contested], stays[contested:]
        freed = lowest.indices[torch.argsort(old.long(), stable=True)]  # slots of those that go come first
        turn = (new.long().cumsum(0) - 1).clamp(0, contested - 1)
        place = torch.where(new, freed[turn], self.capacity)
        for column, values in zip(slots.columns(), samples.columns(), strict=True):
            column.index_copy_(0, place, values.to(column.dtype))
        spare = torch.cat([self.keys, self.keys.new_zeros(1)]).index_copy_(0, place, keys)
        self.keys.copy_(spare[:-1])

    def kept(self) -> Samples | None:
        """What is in it now, or None when nothing is. Waits for the device."""
        if self._slots is None:
            return None
        filled = (self.keys > EMPTY).nonzero().flatten()
        return self._slots[filled] if len(filled) else None

    def _allocate(self, samples: Samples) -> Samples:
        if self._slots is None:
            self._slots = samples.map(lambda column: column.new_zeros(self.capacity + 1, *column.shape[1:]))
            self.keys = torch.full((self.capacity,), EMPTY, device=samples.targets.device)
        return self._slots

    def state_dict(self) -> dict[str, Tensor]:
        if self._slots is None:
            return {}
        return {
            "keys": self.keys,
            **{f"slots.{name}": value for name, value in self._slots.state_dict().items()},
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if not state:
            self._slots, self.keys = None, torch.empty(0)
            return
        self.keys = state["keys"].clone()
        kept = {name.removeprefix("slots."): value.clone() for name, value in state.items() if name != "keys"}
        self._slots = Samples.from_state_dict(kept)
        assert all(len(column) == self.capacity + 1 for column in leaves(self._slots.inputs))
