"""One parameter reached in several ways, such as an embedding tied to the output layer."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .block import Block, Index, slices


class Mixed(Block):
    """The sum of blocks of one and the same parameter: their rows are added, some samples at a time."""

    def __init__(self, name: str, parts: Sequence[Block], max_bytes: int) -> None:
        self.name, self.parts, self.max_bytes = name, parts, max_bytes
        self.shapes = {name: parts[0].shapes[name]}

    def __len__(self) -> int:
        return len(self.parts[0])

    def _flat(self, index: slice) -> Tensor:
        return self.rows(index)[self.name].flatten(1)

    def _slices(self) -> list[slice]:
        sample = next(iter(self.rows(slice(0, 1)).values()))
        return list(slices(len(self), 4 * sample.numel() * sample.element_size(), self.max_bytes))

    def square_norms(self) -> Tensor:
        return torch.cat([self._flat(part).square().sum(1) for part in self._slices()])

    def gram(self, other: Block) -> Tensor:
        assert isinstance(other, Mixed)
        theirs = other._slices()
        strips = []
        for part in self._slices():
            mine = self._flat(part)
            strips.append(torch.cat([mine @ other._flat(their).T for their in theirs], dim=1))
        return torch.cat(strips)

    def gram_cost(self, n: int, m: int) -> int:
        return n * m * math.prod(self.shapes[self.name])

    def pass_cost(self, n: int) -> int:
        return sum(part.pass_cost(n) for part in self.parts)

    def dot(self, direction: dict[str, Tensor]) -> Tensor:
        return torch.stack([part.dot(direction) for part in self.parts]).sum(0)

    def combine(self, weights: Tensor) -> dict[str, Tensor]:
        return {self.name: torch.stack([part.combine(weights)[self.name] for part in self.parts]).sum(0)}

    def squares(self, weights: Tensor) -> dict[str, Tensor]:
        flat = sum(weights[part] @ self._flat(part).square() for part in self._slices())
        return {self.name: torch.as_tensor(flat).reshape(self.shapes[self.name])}

    def rows(self, index: slice) -> dict[str, Tensor]:
        return {self.name: torch.stack([part.rows(index)[self.name] for part in self.parts]).sum(0)}

    def select(self, index: Index) -> "Mixed":
        return Mixed(self.name, [part.select(index) for part in self.parts], self.max_bytes)

    def masked(self, keep: Tensor) -> "Mixed":
        return Mixed(self.name, [part.masked(keep) for part in self.parts], self.max_bytes)

    def only(self, names: frozenset[str]) -> "Mixed | None":
        return self if self.name in names else None
