"""Per-sample gradients of an embedding: sums of output gradients, filed under the looked-up index."""

import torch
from torch import Tensor

from .block import Block, Index, slices, taken


class Lookup(Block):
    """g_n[v] = Σ_t [index_nt = v] left_nt: an outer product with a one-hot vector, which is never written out."""

    def __init__(self, name: str, entries: int, index: Tensor, left: Tensor, max_bytes: int) -> None:
        self.name, self.entries, self.left, self.max_bytes = name, entries, left, max_bytes
        self.index = index.long()  # what some versions of torch scatter and gather by
        self.shapes = {name: (entries, left.shape[-1])}

    def __len__(self) -> int:
        return len(self.left)

    def square_norms(self) -> Tensor:
        positions = self.index.shape[1]
        per_sample = 3 * positions**2 * self.left.element_size()
        parts = []
        for part in slices(len(self), per_sample, self.max_bytes):
            same = self.index[part, :, None] == self.index[part, None, :]
            parts.append((self.left[part] @ self.left[part].mT * same).sum((1, 2)))
        return torch.cat(parts)

    def _gram_costs(self, n: int, m: int, theirs: int) -> tuple[int, int]:
        """Multiplications that `gram` takes by tables of inner products, and by rows."""
        width, positions = self.left.shape[-1], self.index.shape[1]
        by_rows = n * positions + m * theirs + (n * m + n + m) * self.entries
        return n * m * positions * theirs * width, by_rows * width

    def gram_cost(self, n: int, m: int) -> int:
        return min(self._gram_costs(n, m, self.index.shape[1]))

    def pass_cost(self, n: int) -> int:
        return n * self.index.shape[1] * self.left.shape[-1]

    def gram(self, other: Block) -> Tensor:
        assert isinstance(other, Lookup)
        n, m, positions, theirs = len(self), len(other), self.index.shape[1], other.index.shape[1]
        made = n if other is self else n + m
        by_tables, by_rows = self._gram_costs(n, m, theirs)
        if by_rows < by_tables and made * self._row_bytes <= self.max_bytes:
            mine = self.rows(slice(0, n))[self.name].flatten(1)
            return mine @ (mine if other is self else other.rows(slice(0, m))[self.name].flatten(1)).T
        parts = []
        for part in slices(n, 3 * positions * m * theirs * self.left.element_size(), self.max_bytes):
            same = self.index[part].reshape(-1, 1) == other.index.reshape(1, -1)
            table = (self.left[part].flatten(0, 1) @ other.left.flatten(0, 1).T) * same
            parts.append(table.view(-1, positions, m, theirs).sum((1, 3)))
        return torch.cat(parts)

    def dot(self, direction: dict[str, Tensor]) -> Tensor:
        if self.name not in direction:
            return self.left.new_zeros(len(self))
        return (direction[self.name].to(self.left.dtype)[self.index] * self.left).sum((1, 2))

    def combine(self, weights: Tensor) -> dict[str, Tensor]:
        total = self.left.new_zeros(self.entries, self.left.shape[-1])
        weighted = self.left * weights.view(-1, 1, 1)
        return {self.name: total.index_add_(0, self.index.flatten(), weighted.flatten(0, 1))}

    def squares(self, weights: Tensor) -> dict[str, Tensor]:
        """Each position has its whole row, the sum over the sample's positions with its index; the row counts once, in as many parts."""
        total = self.left.new_zeros(self.shapes[self.name])
        positions, width = self.left.shape[1:]
        per_sample = (2 * positions + 2 * width) * positions * self.left.element_size()
        for part in slices(len(self), per_sample, self.max_bytes):
            index = self.index[part]
            same = (index[:, :, None] == index[:, None, :]).to(self.left.dtype)
            rows = same @ self.left[part]
            shares = weights[part, None] / same.sum(2)
            total.index_add_(0, index.flatten(), (rows.square() * shares[..., None]).flatten(0, 1))
        return {self.name: total}

    @property
    def _row_bytes(self) -> int:
        return self.entries * self.left.shape[-1] * self.left.element_size()

    def rows(self, index: slice) -> dict[str, Tensor]:
        left, entry = self.left[index], self.index[index]
        values = left.new_zeros(len(left), *self.shapes[self.name])
        return {self.name: values.scatter_add_(1, entry[..., None].expand_as(left), left)}

    def joined(self, *others: "Lookup") -> "Lookup":
        """The same table looked up several times."""
        index, left = (
            torch.cat([getattr(call, part) for call in (self, *others)], 1) for part in ("index", "left")
        )
        return Lookup(self.name, self.entries, index, left, self.max_bytes)

    def select(self, index: Index) -> "Lookup":
        return Lookup(
            self.name, self.entries, taken(self.index, index), taken(self.left, index), self.max_bytes
        )

    def masked(self, keep: Tensor) -> "Lookup":
        left = torch.where(keep.view(-1, 1, 1), self.left, 0)
        return Lookup(self.name, self.entries, self.index, left, self.max_bytes)

    def only(self, names: frozenset[str]) -> "Lookup | None":
        return self if self.name in names else None
