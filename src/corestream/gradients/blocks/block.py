"""The verbs every block answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

Index = slice | Tensor


class Block(ABC):
    """Per-sample gradients of one parameter, or of a weight and its bias, over N samples."""

    shapes: dict[str, tuple[int, ...]]  # name of each parameter it covers -> its shape

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def square_norms(self) -> Tensor:
        """‖g_n‖², shape [N]."""

    @abstractmethod
    def gram(self, other: "Block") -> Tensor:
        """⟨g_n, h_m⟩ with a block of the same parameters, shape [N, M]."""

    @abstractmethod
    def gram_cost(self, n: int, m: int) -> int:
        """Multiplications that `gram` takes between n and m samples like these, about."""

    @abstractmethod
    def pass_cost(self, n: int) -> int:
        """Multiplications that one `dot` or `combine` takes over n samples like these, about."""

    @abstractmethod
    def dot(self, direction: dict[str, Tensor]) -> Tensor:
        """⟨g_n, v⟩, shape [N]; parameters missing from `direction` count as zero."""

    @abstractmethod
    def combine(self, weights: Tensor) -> dict[str, Tensor]:
        """Σ_n w_n g_n."""

    @abstractmethod
    def squares(self, weights: Tensor) -> dict[str, Tensor]:
        """Σ_n w_n g_n∘g_n."""

    @abstractmethod
    def rows(self, index: slice) -> dict[str, Tensor]:
        """g_n itself for a slice of samples, shape [n, *parameter]."""

    @abstractmethod
    def select(self, index: Index) -> "Block":
        """The same block over some of the samples."""

    @abstractmethod
    def masked(self, keep: Tensor) -> "Block":
        """The same block with the gradients of samples outside the boolean mask set to zero."""

    @abstractmethod
    def only(self, names: frozenset[str]) -> "Block | None":
        """The part that concerns these parameters, or None."""


def taken(values: Tensor, index: Index) -> Tensor:
    """Some of the samples; a tensor of places goes the fast way."""
    if isinstance(index, slice) or index.dtype == torch.bool:
        return values[index]
    return values.index_select(0, index)


def slices(total: int, bytes_each: int, max_bytes: int) -> Iterator[slice]:
    """Cut range(total) so that each slice stays under the budget; at least one element a slice."""
    step = max(1, min(total, max_bytes // max(1, bytes_each)))
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))
