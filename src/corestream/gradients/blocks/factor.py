"""One side of an outer product, kept as small as the layer left it."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .block import Index, taken


class Factor:
    """[N, G, T, width] (G groups, T positions), made for some samples at a time.

    A convolution's patches are many times larger than its input, so `make` unfolds them only when asked for; `sizes` are G, T and
    width of what it makes.
    """

    def __init__(
        self,
        source: Tensor,
        make: Callable[[Tensor], Tensor] | None = None,
        sizes: tuple[int, int, int] | None = None,
    ) -> None:
        self.source, self.make = source, make
        self.groups, self.positions, self.width = sizes or source.shape[1:]

    def __len__(self) -> int:
        return self.source.shape[0]

    def __getitem__(self, index: Index) -> Tensor:
        part = taken(self.source, index)
        return part if self.make is None else self.make(part)

    def whole(self) -> Tensor:
        """All samples at once."""
        return self.source if self.make is None else self.make(self.source)

    def select(self, index: Index) -> "Factor":
        return self._with(taken(self.source, index))

    def masked(self, keep: Tensor) -> "Factor":
        return self._with(torch.where(keep.view(-1, *[1] * (self.source.dim() - 1)), self.source, 0))

    def _with(self, source: Tensor) -> "Factor":
        twin = object.__new__(Factor)
        twin.__dict__.update(self.__dict__, source=source)
        return twin

    @property
    def unfolds(self) -> bool:
        """Whether it must be made before use."""
        return self.make is not None

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def bytes_each(self) -> int:
        """What one sample takes once it is made."""
        return self.groups * self.positions * self.width * self.source.element_size()


class Joined(Factor):
    """The factors of several calls of one layer, one after the other along the position axis."""

    def __init__(self, parts: Sequence[Factor]) -> None:
        self.parts = parts
        self.source = parts[0].source
        self.groups, self.width = parts[0].groups, parts[0].width
        self.positions = sum(part.positions for part in parts)

    def __getitem__(self, index: Index) -> Tensor:
        return torch.cat([part[index] for part in self.parts], dim=2)

    @property
    def unfolds(self) -> bool:
        return True

    def whole(self) -> Tensor:
        return torch.cat([part.whole() for part in self.parts], dim=2)

    def select(self, index: Index) -> "Joined":
        return Joined([part.select(index) for part in self.parts])

    def masked(self, keep: Tensor) -> "Joined":
        return Joined([part.masked(keep) for part in self.parts])
