"""Per-sample gradients held as they are."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .block import Block, Index, taken


class Rows(Block):
    """g_n itself, for parameters so small, or uses so odd, that factors gain nothing: [N, all entries of all its parameters]."""

    def __init__(self, name: str, values: Tensor) -> None:
        """One parameter's, [N, *shape]."""
        self.shapes, self.flat = {name: tuple(values.shape[1:])}, values.reshape(len(values), -1)

    @staticmethod
    def side_by_side(parts: "Sequence[Rows]") -> "Rows":
        """Those of different parameters: one matrix product then does for all."""
        shapes = {name: shape for part in parts for name, shape in part.shapes.items()}
        return parts[0].with_(torch.cat([part.flat for part in parts], dim=1), shapes)

    def joined(self, *others: "Rows") -> "Rows":
        """The same parameters used several times."""
        return self.with_(torch.stack([part.flat for part in (self, *others)]).sum(0))

    def with_(self, flat: Tensor, shapes: dict[str, tuple[int, ...]] | None = None) -> "Rows":
        """Other values of the same parameters, or of others."""
        twin = object.__new__(Rows)
        twin.shapes, twin.flat = shapes or self.shapes, flat
        return twin

    def __len__(self) -> int:
        return self.flat.shape[0]

    def square_norms(self) -> Tensor:
        return self.flat.square().sum(1)

    def gram(self, other: Block) -> Tensor:
        assert isinstance(other, Rows)
        return self.flat @ other.flat.T

    def gram_cost(self, n: int, m: int) -> int:
        return n * m * self.flat.shape[1]

    def pass_cost(self, n: int) -> int:
        return n * self.flat.shape[1]

    def dot(self, direction: dict[str, Tensor]) -> Tensor:
        part = self.only(frozenset(direction))
        if part is None:
            return self.flat.new_zeros(len(self))
        vector = torch.cat([direction[name].reshape(-1).to(self.flat.dtype) for name in part.shapes])
        return part.flat @ vector

    def combine(self, weights: Tensor) -> dict[str, Tensor]:
        return self._split(weights @ self.flat)

    def squares(self, weights: Tensor) -> dict[str, Tensor]:
        return self._split(weights @ self.flat.square())

    def rows(self, index: slice) -> dict[str, Tensor]:
        return self._split(self.flat[index])

    def _split(self, values: Tensor) -> dict[str, Tensor]:
        """[..., all entries] as each parameter's own."""
        parts = values.split([math.prod(shape) for shape in self.shapes.values()], dim=-1)
        return {
            name: part.reshape((*part.shape[:-1], *shape))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def select(self, index: Index) -> "Rows":
        return self.with_(taken(self.flat, index))

    def masked(self, keep: Tensor) -> "Rows":
        return self.with_(torch.where(keep.unsqueeze(1), self.flat, 0))

    def only(self, names: frozenset[str]) -> "Rows | None":
        if names.issuperset(self.shapes):
            return self
        parts = [Rows(name, part) for name, part in self.rows(slice(None)).items() if name in names]
        return Rows.side_by_side(parts) if parts else None
