"""A uniform sample of a stream of unknown length, in place and without a look at any value."""

import torch
from torch import Tensor

from ..devices import wide, widest
from ..fusing import fusible, is_fusing
from ..states import part_of, prefixed
from .samples import Samples


class Reservoir:
    """The classical reservoir: the s-th sample to pass takes a random one of s places, and is kept if that is one of the slots.

    All shapes are fixed and nothing waits for the device, so that a step that adds to it can be captured in a CUDA graph. One slot
    more than the capacity takes what is not kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._slots: Samples | None = None
        self._passed = torch.zeros((), dtype=torch.long)

    @property
    def slots(self) -> Samples:
        """The storage: `capacity` slots, filled from the first on, and the spare one."""
        if self._slots is None:
            raise LookupError("the reservoir is empty")
        return self._slots

    def clear(self) -> None:
        self._passed.zero_()

    def add(self, samples: Samples, rows: Tensor, generator: torch.Generator | None) -> None:
        """Let some of the samples pass by, told by their rows; a row of −1 stands for none."""
        slots = self._allocate(samples)
        chance = _chances(rows, generator)
        if rows.is_cuda or is_fusing():
            _put(slots.columns(), samples.columns(), rows, chance, self._passed, self.capacity)
        else:
            self._put_one_by_one(slots, samples, rows, chance)

    def _put_one_by_one(self, slots: Samples, samples: Samples, rows: Tensor, chance: Tensor) -> None:
        """On the processor, where a look at values costs nothing, a short loop is faster than a dozen small operations."""
        taken, passed = places_one_by_one(rows.tolist(), chance.tolist(), int(self._passed), self.capacity)
        self._passed.fill_(passed)
        if taken:
            place, source = torch.tensor(list(taken.items()), device=rows.device).unbind(1)
            for column, values in zip(slots.columns(), samples.columns(), strict=True):
                column.index_copy_(0, place, values.index_select(0, source))

    def kept(self) -> Samples | None:
        """What is in it now, or None when nothing is. Waits for the device."""
        count = min(int(self._passed), self.capacity)
        return self.slots[:count] if count else None

    def _allocate(self, samples: Samples) -> Samples:
        if self._slots is None:
            self._slots = samples.map(lambda column: column.new_zeros(self.capacity + 1, *column.shape[1:]))
            self._passed = self._passed.to(samples.targets.device)
        samples.require_kind_of(self._slots)
        return self._slots

    def state_dict(self) -> dict[str, Tensor]:
        kept = self.kept() if self._slots is not None else None
        return {} if kept is None else {"passed": self._passed, **prefixed("slots.", kept.state_dict())}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if not state:
            self._slots, self._passed = None, torch.zeros((), dtype=torch.long)
            return
        self._passed = state["passed"].clone()
        held = Samples.from_state_dict(part_of(state, "slots."))
        count = min(int(self._passed), self.capacity)
        if len(held) != count:
            raise ValueError(
                f"this reservoir has {self.capacity} slots; after {int(self._passed)} samples the state has {len(held)} of them"
            )
        self._slots = None
        for column, values in zip(self._allocate(held).columns(), held.columns(), strict=True):
            column[:count].copy_(values[:count])


def _chances(rows: Tensor, generator: torch.Generator | None) -> Tensor:
    """In double precision, for single would prefer some slots to others after a million samples."""
    if widest(rows.device) == torch.float64:
        return torch.rand(rows.shape, generator=generator, device=rows.device, dtype=torch.float64)
    drawn = wide(torch.rand(2, *rows.shape, generator=generator, device=rows.device))
    return drawn[0] + drawn[1] * 2**-24  # single precision draws multiples of 2⁻²⁴


@fusible
def _put(
    slots: list[Tensor], values: list[Tensor], rows: Tensor, chance: Tensor, passed: Tensor, capacity: int
) -> None:
    place, after = places(rows, chance, passed, capacity)
    passed.copy_(after)
    chosen = rows.clamp_min(0)
    for column, source in zip(slots, values, strict=True):
        column.index_copy_(0, place, source.index_select(0, chosen))


def places(rows: Tensor, chance: Tensor, passed: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """The slot of each sample, `capacity` for none, and how many have passed afterwards; without a look at any value."""
    there = rows >= 0
    turn = there.cumsum(0) + passed  # 1 for the first sample ever
    place = torch.where(turn <= capacity, turn - 1, (chance * turn).long())
    place = place.masked_fill(~there, capacity).clamp_max(capacity)
    retaken = (place == place.unsqueeze(1)).triu(1).any(1)  # by a later sample of the same batch
    return place.masked_fill(retaken, capacity), turn[-1]


def places_one_by_one(
    rows: list[int], chance: list[float], passed: int, capacity: int
) -> tuple[dict[int, int], int]:
    """The same, by a loop: the row that each slot taken ends up with, and how many have passed."""
    taken: dict[int, int] = {}
    for row, share in zip(rows, chance, strict=True):
        if row < 0:
            continue
        passed += 1
        slot = passed - 1 if passed <= capacity else int(share * passed)
        if slot < capacity:
            taken[slot] = row
    return taken, passed
