"""Per-sample gradients that are sums of outer products: linear and convolutional layers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from .block import Block, Index, slices
from .factor import Factor, Joined
from .rows import Rows

EVERY = slice(None)
CACHE_BYTES = 2**22  # patches unfolded at once: few enough to stay near the processor
SMALL_PRODUCTS = 2  # rows come from many small matrix products, at about half the speed of a large one


@dataclass(eq=False, repr=False)
class Outer(Block):
    """g_n = Σ_t left_nt ⊗ right_nt for a weight; Σ_t left_nt for the bias beside it, when it has one.

    `right` is the layer's input (or its patches), `left` its output gradient. Each verb takes the cheaper of two exact forms:
    the factors, through T × T tables of inner products, or the rows g_n themselves, some output features at a time.
    """

    weight: str
    shape: tuple[int, ...]
    left: Factor
    right: Factor
    bias: str | None
    max_bytes: int

    def __post_init__(self) -> None:
        self.shapes = {self.weight: self.shape}
        if self.bias is not None:
            self.shapes[self.bias] = (self.left.groups * self.left.width,)

    def __len__(self) -> int:
        return len(self.left)

    @property
    def _is_flat(self) -> bool:
        return self.left.positions == 1 and self.left.groups == 1

    def _flat(self) -> tuple[Tensor, Tensor]:
        """Both factors as [N, width], for the plain linear layer on vectors."""
        return self.left.whole().flatten(1), self.right.whole().flatten(1)

    # Norms

    def square_norms(self) -> Tensor:
        if self._is_flat:
            left, right = self._flat()
            lefts: Tensor = torch.linalg.vector_norm(left, dim=1).square_()
            return lefts.mul_(self._with_bias(torch.linalg.vector_norm(right, dim=1).square_()))
        if self.left.positions * (self.left.width + self.right.width) < self.left.width * self.right.width:
            return self._norms_by_tables()
        total = self._bias_rows().square().sum(1) if self.bias is not None else self._zeros(len(self))
        for rows, _ in self._row_chunks(self):
            total += rows.square().sum(1)
        return total

    def _norms_by_tables(self) -> Tensor:
        table_bytes = 3 * self.left.groups * self.left.positions**2 * self.left.source.element_size()
        norms = []
        for part in slices(len(self), self.right.bytes_each + table_bytes, self.max_bytes):
            left, right = self.left[part], self.right[part]
            norms.append((left @ left.mT * self._with_bias(right @ right.mT)).sum((1, 2, 3)))
        return torch.cat(norms)

    def _with_bias(self, rights: Tensor) -> Tensor:
        """The bias is a weight whose input is always 1."""
        return rights.add_(1) if self.bias is not None else rights

    # Inner products

    def gram(self, other: Block) -> Tensor:
        assert isinstance(other, Outer)
        if self._is_flat and other._is_flat:
            left, right = self._flat()
            left2, right2 = (left, right) if other is self else other._flat()
            lefts, rights = left @ left2.T, right @ right2.T
            return lefts.mul_(rights) if self.bias is None else torch.addcmul(lefts, lefts, rights)
        theirs = 0 if other is self else other.left.positions  # rows are made once for both sides
        by_tables, by_rows = self._gram_costs(len(self), len(other), other.left.positions, theirs)
        return self._gram_by_tables(other) if by_tables < by_rows else self._gram_by_rows(other)

    def _gram_costs(self, n: int, m: int, theirs: int, made: int) -> tuple[int, int]:
        """Multiplications that `gram` takes by tables of inner products, and by rows."""
        groups, mine, out, width = self.left.groups, self.left.positions, self.left.width, self.right.width
        by_tables = n * m * mine * theirs * (out + width) * groups
        by_rows = (n * mine + m * made + n * m) * out * width * groups
        return by_tables, SMALL_PRODUCTS * by_rows

    def gram_cost(self, n: int, m: int) -> int:
        return min(self._gram_costs(n, m, self.left.positions, self.left.positions))

    def pass_cost(self, n: int) -> int:
        return n * self.left.positions * self.left.groups * self.left.width * self.right.width

    def _gram_by_tables(self, other: "Outer") -> Tensor:
        """Σ_ts (b_nt·b_ms)(a_nt·a_ms), pairs of slices at a time."""
        groups, item = self.left.groups, self.left.source.element_size()
        strips = []
        for columns in slices(len(other), other.right.bytes_each, self.max_bytes // 4):
            left2, right2 = (self._by_group(f[columns]) for f in (other.left, other.right))
            table_bytes = 3 * groups * self.left.positions * left2.shape[1] * item
            strip = []
            for part in slices(len(self), table_bytes + self.right.bytes_each, self.max_bytes // 2):
                left, right = (self._by_group(f[part]) for f in (self.left, self.right))
                table = _product(left, left2.mT).mul_(self._with_bias(_product(right, right2.mT)))
                rows, cells = part.stop - part.start, columns.stop - columns.start
                sizes = (groups, rows, self.left.positions, cells, other.left.positions)
                strip.append(table.view(sizes).sum((0, 2, 4)))
            strips.append(torch.cat(strip))
        return torch.cat(strips, dim=1)

    def _gram_by_rows(self, other: "Outer") -> Tensor:
        total: Tensor | None = None
        for mine, theirs in self._row_chunks(other):
            total = mine @ theirs.T if total is None else total.addmm_(mine, theirs.T)
        assert total is not None, "a layer has at least one output"
        if self.bias is not None:
            biases = self._bias_rows()
            total.addmm_(biases, (biases if other is self else other._bias_rows()).T)
        return total

    def dot(self, direction: dict[str, Tensor]) -> Tensor:
        if self._is_flat and self.weight in direction:
            left, right = self._flat()
            image = right @ direction[self.weight].to(left.dtype).reshape(left.shape[1], -1).T
            if self.bias in direction:
                image += direction[self.bias].to(left.dtype)
            return image.mul_(left).sum(1)
        total = self._zeros(len(self))
        if self.bias in direction:
            total += self._bias_rows() @ direction[self.bias].to(self.left.dtype)
        if self.weight in direction:
            matrix = direction[self.weight].to(self.left.dtype)
            matrix = matrix.reshape(self.left.groups, self.left.width, self.right.width)
            for part in slices(len(self), self.right.bytes_each + self.left.bytes_each, self.max_bytes):
                lefts, rights = self._by_group(self.left[part]), self._by_group(self.right[part])
                image = _product(rights, matrix.mT).mul_(lefts).sum(2)
                total[part] += image.view(self.left.groups, -1, self.left.positions).sum((0, 2))
        return total

    # Weighted sums

    def combine(self, weights: Tensor) -> dict[str, Tensor]:
        if self._is_flat:
            return self._combine_vectors(weights)
        weighted = self.left.whole() * weights.view(-1, 1, 1, 1)
        total: Tensor | None = None
        for part in slices(len(self), self.right.bytes_each, self.max_bytes):
            lefts, rights = self._by_group(weighted[part]), self._by_group(self.right[part])
            product = _product(lefts.mT, rights)
            total = product if total is None else total.add_(product)
        assert total is not None, "a block has at least one sample"
        combined = {self.weight: total.reshape(self.shape)}
        if self.bias is not None:
            combined[self.bias] = weighted.sum((0, 2)).flatten()
        return combined

    def _combine_vectors(self, weights: Tensor) -> dict[str, Tensor]:
        left, right = self._flat()
        combined = {self.weight: _sum_of_outer((left * weights.unsqueeze(1)).T, right).reshape(self.shape)}
        if self.bias is not None:
            combined[self.bias] = weights @ left
        return combined

    def squares(self, weights: Tensor) -> dict[str, Tensor]:
        if self._is_flat:
            left, right = self._flat()
            weight = (left.square() * weights[:, None]).T @ right.square()
        else:
            parts = [weights @ rows.square() for rows, _ in self._row_chunks(self)]
            weight = torch.cat([part.view(self.left.groups, -1, self.right.width) for part in parts], dim=1)
        squared = {self.weight: weight.reshape(self.shape)}
        if self.bias is not None:
            squared[self.bias] = weights @ self._bias_rows().square()
        return squared

    # Rows

    def rows(self, index: slice) -> dict[str, Tensor]:
        part = slice(*index.indices(len(self))[:2])
        made = {self.weight: self._weight_rows(part, EVERY).reshape(-1, *self.shape)}
        if self.bias is not None:
            made[self.bias] = self.left[part].sum(2).flatten(1)
        return made

    def _bias_rows(self) -> Tensor:
        return self.left.whole().sum(2).flatten(1)

    def _row_chunks(self, other: "Outer") -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of [N, part] and [M, part] matrices that together hold all the rows, some output features at a time."""
        count = len(self) if other is self else len(self) + len(other)
        feature_bytes = count * self.left.groups * self.right.width * self.left.source.element_size()
        for features in slices(self.left.width, feature_bytes, self.max_bytes // 2):
            mine = self._weight_rows(slice(0, len(self)), features).flatten(1)
            yield (
                mine,
                mine if other is self else other._weight_rows(slice(0, len(other)), features).flatten(1),
            )

    def _weight_rows(self, index: slice, features: slice) -> Tensor:
        """[n, G, features, width], unfolding a few samples at a time."""
        pieces = [
            slice(index.start + piece.start, index.start + piece.stop)
            for piece in slices(index.stop - index.start, self.right.bytes_each, self._unfolded_bytes)
        ]
        rows = [self.left[piece][..., features].mT @ self.right[piece] for piece in pieces]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    @property
    def _unfolded_bytes(self) -> int:
        """How much may be unfolded at once; what needs no unfolding is there already."""
        if not self.right.unfolds:
            return len(self) * self.right.bytes_each
        return self.max_bytes // 2 if self.left.source.is_cuda else min(self.max_bytes // 2, CACHE_BYTES)

    @staticmethod
    def _by_group(factor: Tensor) -> Tensor:
        """[G, N·T, width]"""
        return factor.transpose(0, 1).flatten(1, 2)

    def _zeros(self, *shape: int) -> Tensor:
        return self.left.source.new_zeros(*shape)

    # Parts

    def select(self, index: Index) -> Self:
        return self._with(left=self.left.select(index), right=self.right.select(index))

    def masked(self, keep: Tensor) -> Self:
        return self._with(left=self.left.masked(keep), right=self.right.masked(keep))

    def joined(self, *others: "Outer") -> "Outer":
        """The same layer called several times."""
        calls = (self, *others)
        left, right = Joined([call.left for call in calls]), Joined([call.right for call in calls])
        return Outer(self.weight, self.shape, left, right, self.bias, self.max_bytes)

    def _with(self, **changed: Any) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, **changed)
        return twin

    def only(self, names: frozenset[str]) -> Block | None:
        if self.weight in names:
            if self.bias is None or self.bias in names:
                return self
            return self._with(bias=None, shapes={self.weight: self.shape})
        if self.bias is not None and self.bias in names:
            return Rows(self.bias, self._bias_rows())
        return None


def _sum_of_outer(lefts: Tensor, rights: Tensor) -> Tensor:
    """A product of few columns and rows; on a processor, adding it to zeros is faster than writing it out."""
    if lefts.is_cuda:
        return lefts @ rights
    return lefts.new_zeros(lefts.shape[0], rights.shape[1]).addmm_(lefts, rights)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix products group by group; one group alone is a plain product, which is faster than a batch of one."""
    return (a[0] @ b[0]).unsqueeze(0) if len(a) == 1 else a @ b
