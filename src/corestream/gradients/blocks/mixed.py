"""One parameter reached in several ways, such as an embedding tied to the output layer."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .block import Block, Index, slices
from .lookup import Lookup
from .outer import Outer


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
        if (tied := _tied(self)) is not None:
            linear, lookup = tied
            return linear.square_norms() + lookup.square_norms() + 2 * _crossed_norms(linear, lookup)
        return torch.cat([self._flat(part).square().sum(1) for part in self._slices()])

    def gram(self, other: Block) -> Tensor:
        assert isinstance(other, Mixed)
        mine, theirs = _tied(self), _tied(other)
        if mine is not None and theirs is not None:
            products = mine[0].gram(theirs[0]), mine[1].gram(theirs[1])
            return sum(products, _crossed(mine[0], theirs[1]) + _crossed(theirs[0], mine[1]).T)
        return self._gram_by_rows(other)

    def _gram_by_rows(self, other: "Mixed") -> Tensor:
        theirs = other._slices()
        strips = []
        for part in self._slices():
            mine = self._flat(part)
            strips.append(torch.cat([mine @ other._flat(their).T for their in theirs], dim=1))
        return torch.cat(strips)

    def gram_cost(self, n: int, m: int) -> int:
        if (tied := _tied(self)) is None:
            return n * m * math.prod(self.shapes[self.name])
        linear, lookup = tied
        crossed = 2 * n * m * linear.left.positions * lookup.index.shape[1] * linear.right.width
        return linear.gram_cost(n, m) + lookup.gram_cost(n, m) + crossed

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


def _tied(block: Mixed) -> tuple[Outer, Lookup] | None:
    """The two ways of a weight that is a linear layer's and an embedding's: their rows need not be written out."""
    linear = [part for part in block.parts if type(part) is Outer and part.left.groups == 1]
    lookups = [part for part in block.parts if isinstance(part, Lookup)]
    found = len(block.parts) == 2 and len(linear) == len(lookups) == 1
    return (linear[0], lookups[0]) if found else None


def _crossed(linear: Outer, lookup: Lookup) -> Tensor:
    """⟨Σ_t b_nt ⊗ a_nt, Σ_s [index_ms] ⊗ e_ms⟩ = Σ_ts b_nt[index_ms] (a_nt · e_ms), shape [N, M]."""
    entries, rights = lookup.index.flatten(), lookup.left.flatten(0, 1)
    per_sample = 3 * linear.left.positions * len(entries) * rights.element_size()
    strips = []
    for part in slices(len(linear), per_sample, linear.max_bytes):
        table = linear.left[part][:, 0].index_select(2, entries).mul_(linear.right[part][:, 0] @ rights.T)
        strips.append(table.sum(1).view(-1, len(lookup), lookup.index.shape[1]).sum(2))
    return torch.cat(strips)


def _crossed_norms(linear: Outer, lookup: Lookup) -> Tensor:
    """The same of each sample with itself, shape [N]."""
    positions = linear.left.positions
    per_sample = 3 * positions * lookup.index.shape[1] * lookup.left.element_size()
    sums = []
    for part in slices(len(linear), per_sample, linear.max_bytes):
        entries = lookup.index[part].unsqueeze(1).expand(-1, positions, -1)
        table = linear.left[part][:, 0].gather(2, entries)
        sums.append(table.mul_(linear.right[part][:, 0] @ lookup.left[part].mT).sum((1, 2)))
    return torch.cat(sums)
