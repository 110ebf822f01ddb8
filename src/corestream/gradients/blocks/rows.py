"""Per-sample gradients held as they are."""

import torch
from torch import Tensor

from .block import Block, Index, taken


class Rows(Block):
    """g_n of one parameter, [N, *shape]: for parameters so small, or uses so odd, that factors gain nothing."""

    def __init__(self, name: str, values: Tensor) -> None:
        self.name, self.values = name, values
        self.shapes = {name: tuple(values.shape[1:])}
        self.flat = values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)

    def __len__(self) -> int:
        return self.values.shape[0]

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
        if self.name not in direction:
            return self.flat.new_zeros(len(self))
        return self.flat @ direction[self.name].reshape(-1).to(self.flat.dtype)

    def combine(self, weights: Tensor) -> dict[str, Tensor]:
        return {self.name: (weights @ self.flat).reshape(self.shapes[self.name])}

    def squares(self, weights: Tensor) -> dict[str, Tensor]:
        return {self.name: (weights @ self.flat.square()).reshape(self.shapes[self.name])}

    def rows(self, index: slice) -> dict[str, Tensor]:
        return {self.name: self.values[index]}

    def select(self, index: Index) -> "Rows":
        return Rows(self.name, taken(self.values, index))

    def masked(self, keep: Tensor) -> "Rows":
        return Rows(self.name, torch.where(keep.view(-1, *[1] * (self.values.dim() - 1)), self.values, 0))

    def only(self, names: frozenset[str]) -> "Rows | None":
        return self if self.name in names else None
