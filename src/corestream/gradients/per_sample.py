"""What would each sample do to the model? Inner products of the samples' gradients, from the layers' factors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..fusing import fusible
from .blocks import Block, Rows
from .blocks.assemble import pairs
from .blocks.block import Index, taken
from .precision import full_precision

LAUNCH_COST = 2 * 10**8
SMALL_TABLE = 2**14  # entries


class PerSampleGradients:
    """The gradients g_n of N samples' own losses, held as the layers' factors.

    A sample whose loss or gradient is not finite counts as a zero gradient everywhere; `finite` tells which those are.
    """

    def __init__(
        self,
        losses: Tensor,
        outputs: Any,
        blocks: Sequence[Block],
        parameters: dict[str, Tensor],
        max_bytes: int,
        general: frozenset[str] = frozenset(),
        coupled: bool = False,
    ) -> None:
        self.losses, self.outputs, self.general = losses, outputs, general  # parameters without a rule
        self._blocks, self._parameters, self._max_bytes = list(blocks), parameters, max_bytes
        self.coupled = coupled  # whether samples were seen to depend on each other
        self._norms: Tensor | None = None
        self._finite: Tensor | None = None
        self._all_finite: bool | None = None

    @property
    def unused(self) -> frozenset[str]:
        """Parameters that no sample's loss depends on."""
        return frozenset(self._parameters).difference(*(block.shapes for block in self._blocks))

    def __len__(self) -> int:
        return self.losses.shape[0]

    def __getitem__(self, index: Index | list[int]) -> "PerSampleGradients":
        """The gradients of some of the samples: a slice, or a tensor or list of indices."""
        if isinstance(index, list):
            index = torch.tensor(index, dtype=None if index else torch.long, device=self.losses.device)
        if not isinstance(index, slice | Tensor):
            raise TypeError(
                f"gradients are indexed by a slice, or a tensor or list of indices, got {index!r}: "
                "sample n alone is grads[n : n + 1]"
            )
        losses = taken(self.losses, index)
        blocks = self._chosen(index) if len(losses) else []
        part = PerSampleGradients(losses, None, blocks, self._parameters, self._max_bytes)
        part._norms = None if self._norms is None else taken(self._norms, index)
        part._finite = None if self._finite is None else taken(self._finite, index)
        return part

    def only(self, names: Sequence[str]) -> "PerSampleGradients":
        """The gradients over some of the parameters, by their names or those of their modules."""
        given = [names] if isinstance(names, str) else list(names)
        found = {
            name: [p for p in self._parameters if p == name or p.startswith(f"{name}.")] for name in given
        }
        if unknown := sorted(name for name in given if not found[name]):
            raise ValueError(f"names: {', '.join(unknown)} are no trainable parameters of the model")
        wanted = frozenset(p for some in found.values() for p in some)
        blocks = [part for block in self._blocks if (part := block.only(wanted)) is not None]
        parameters = {name: p for name, p in self._parameters.items() if name in wanted}
        return PerSampleGradients(self.losses, self.outputs, blocks, parameters, self._max_bytes)

    @property
    def finite(self) -> Tensor:
        """[N] bool: whether the sample's loss and gradient are finite."""
        if self._finite is None:
            self._finite = _is_finite(self._square_norms(), self.losses)
        return self._finite

    def rows_are_finite(self) -> Tensor:
        """[N] bool: the same of what the general path has written out alone, without the work for norms."""
        rows = [block.flat.isfinite().all(1) for block in self._blocks if isinstance(block, Rows)]
        return torch.stack(rows).all(0) if rows else torch.ones_like(self.losses, dtype=torch.bool)

    @property
    def all_finite(self) -> bool:
        """Whether every sample is known to be finite: a card is not asked, for that would wait."""
        if self._all_finite is None:
            self._all_finite = not self.finite.is_cuda and bool(self.finite.all())
        return self._all_finite

    def norms(self) -> Tensor:
        """‖g_n‖, shape [N]."""
        return self._zeroed(self._square_norms(), ~self.finite).clamp_min(0).sqrt()

    @full_precision
    def gram(self, other: "PerSampleGradients | None" = None) -> Tensor:
        """⟨g_n, h_m⟩, shape [N, M]; `other` are gradients of the same model, and these themselves when it is not given."""
        if not isinstance(other, PerSampleGradients | None):
            raise TypeError(f"other must be what per_sample_gradients gives, got {type(other).__name__}")
        table = self._raw_gram(self if other is None else other)
        if other is not None:
            return self._zeroed(table, ~self.finite[:, None] | ~other.finite)
        if table.is_cuda:
            self._norms, self._finite, table = _cleared(table, self.losses)
            return table
        self._norms, self._finite = _judged(table, self.losses)
        return table if self.all_finite else _kept(table, self._finite)

    @full_precision
    def dot(self, direction: dict[str, Tensor]) -> Tensor:
        """⟨g_n, v⟩, shape [N], for a parameter-shaped v; parameters it leaves out count as zero."""
        if not isinstance(direction, Mapping):
            raise TypeError(
                f"direction must be a dict of tensors by parameter, got {type(direction).__name__}"
            )
        if unknown := sorted(set(direction) - set(self._parameters)):
            raise ValueError(f"direction: {', '.join(unknown)} are no trainable parameters of the model")
        for name, part in direction.items():
            if part.shape != (shape := self._parameters[name].shape):
                raise ValueError(
                    f"direction: {name} has shape {list(part.shape)}, and the parameter {list(shape)}"
                )
        products = (block.dot(direction) for block in self._blocks)
        return self._zeroed(self._sum(products, len(self)), ~self.finite)

    @full_precision
    def combine(self, weights: Tensor, rows: Tensor | None = None) -> dict[str, Tensor]:
        """Σ_n w_n g_n: the gradient of any weighted choice of the samples, with no second pass.

        `rows` are the samples that the weights stand for, all of them where it is None; given ones must be finite.
        """
        _require_tensor(weights)
        if rows is None:
            return self._like_parameters(self._reduce("combine", weights))
        if weights.shape != rows.shape:
            raise ValueError(
                f"weights must have shape {list(rows.shape)}, one a row, got {list(weights.shape)}"
            )
        chosen = self._chosen(rows) if len(rows) else []
        return self._like_parameters(self._summed("combine", chosen, weights))

    @full_precision
    def direction(self, weights: Tensor) -> dict[str, Tensor]:
        """The same to take inner products with, in their precision: half precision would round it, and overflow when it is squared."""
        return self._reduce("combine", weights)

    @full_precision
    def total(self) -> dict[str, Tensor]:
        """The direction Σ_n g_n, without the norm of each sample, which would cost more.

        Where all losses and the sum are finite every sample is; otherwise those that are not are found and left out. A card is not
        asked: there those with a finite loss are summed, whatever their gradients are.
        """
        ones = torch.ones_like(self.losses)
        if self._finite is not None:
            return self._reduce("combine", ones)
        if self.losses.is_cuda:
            keep = torch.isfinite(self.losses)
            return self._summed("combine", (block.masked(keep) for block in self._blocks), ones)
        if bool(self.losses.isfinite().all()):
            sums = self._summed("combine", self._blocks, ones)
            if all(bool(part.square().sum().isfinite()) for part in sums.values()):
                return sums
        return self._reduce("combine", ones)

    def squares(self, weights: Tensor | None = None) -> dict[str, Tensor]:
        """Σ_n w_n g_n∘g_n, w_n = 1 when none are given: the Fisher diagonal, up to its scale."""
        return self._like_parameters(self.wide_squares(weights))

    def wide_squares(self, weights: Tensor | None = None) -> dict[str, Tensor]:
        """The same in the precision of inner products, for sums over many batches."""
        return self._reduce("squares", torch.ones_like(self.losses) if weights is None else weights)

    def gram_cost(self, n: int, m: int) -> int:
        """Multiplications that `gram` takes between n and m samples like these, about."""
        return sum(block.gram_cost(n, m) + self._launch_cost for block in self._blocks)

    def pass_cost(self, n: int) -> int:
        """Multiplications that one `dot` or `combine` takes over n samples like these, about."""
        return sum(block.pass_cost(n) + self._launch_cost for block in self._blocks)

    def _chosen(self, index: Index) -> list[Block]:
        """Of some samples, at least one: a block of none has nothing to say."""
        return [block.select(index) for block in self._blocks]

    @property
    def _launch_cost(self) -> int:
        """What a card could have multiplied while it starts the kernels of one block."""
        return LAUNCH_COST if self.losses.is_cuda else 0

    @full_precision
    def _reduce(self, verb: str, weights: Tensor) -> dict[str, Tensor]:
        _require_tensor(weights)
        if weights.shape != self.losses.shape:
            raise ValueError(
                f"weights must have shape [{len(self)}], one a sample, got {list(weights.shape)}"
            )
        return self._summed(verb, self._finite_blocks(), weights)

    def _summed(self, verb: str, blocks: Iterable[Block], weights: Tensor) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        for block in blocks:
            sums.update(getattr(block, verb)(weights.to(self._dtype)))
        return {
            name: sums[name]
            if name in sums
            else torch.zeros_like(parameter, dtype=self._dtype, requires_grad=False)
            for name, parameter in self._parameters.items()
        }

    def _like_parameters(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: _laid_out_like(parameter, sums[name]) for name, parameter in self._parameters.items()}

    def _finite_blocks(self) -> Iterable[Block]:
        """0 × NaN is NaN: what is not finite must be zero in the factors before it is summed over."""
        return self._blocks if self.all_finite else (block.masked(self.finite) for block in self._blocks)

    @full_precision
    def _square_norms(self) -> Tensor:
        if self._norms is None:
            self._norms = self._sum((block.square_norms() for block in self._blocks), len(self))
        return self._norms

    def _raw_gram(self, other: "PerSampleGradients") -> Tensor:
        if other is self:
            return self._sum((block.gram(block) for block in self._blocks), len(self), len(self))
        if {n: id(p) for n, p in self._parameters.items()} != {
            n: id(p) for n, p in other._parameters.items()
        }:
            raise ValueError("other: these gradients are of another model, or of other parameters of it")
        matched = pairs(self._blocks, other._blocks, self._max_bytes)
        return self._sum((mine.gram(theirs) for mine, theirs in matched), len(self), len(other))

    def _sum(self, products: Iterable[Tensor], *shape: int) -> Tensor:
        """Small ones at once; large ones one after the other, so that no two of them are held beside their sum."""
        if math.prod(shape) <= SMALL_TABLE and (parts := list(products)):
            return torch.stack(parts).sum(0)
        total: Tensor | None = None
        for product in products:
            total = product if total is None else total.add_(product)
        return torch.zeros(*shape, dtype=self._dtype, device=self.losses.device) if total is None else total

    @staticmethod
    def _zeroed(values: Tensor, bad: Tensor) -> Tensor:
        return values.masked_fill(bad, 0) if bad.is_cuda or bool(bad.any()) else values

    @property
    def _dtype(self) -> torch.dtype:
        return self.losses.dtype


@fusible
def _require_tensor(weights: object) -> None:
    if not isinstance(weights, Tensor):
        raise TypeError(f"weights must be a tensor, one number a sample, got {type(weights).__name__}")


def _cleared(table: Tensor, losses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What `_judged` gives, and the table without what is not finite."""
    norms, finite = _judged(table, losses)
    return norms, finite, _kept(table, finite)


def _judged(table: Tensor, losses: Tensor) -> tuple[Tensor, Tensor]:
    """The squared norms, held apart from their table, and whether they and the losses are finite."""
    norms = table.diagonal().clone()
    return norms, _is_finite(norms, losses)


def _laid_out_like(parameter: Tensor, gradient: Tensor) -> Tensor:
    """With the parameter's dtype, and its entries in the same order in memory: fused optimisers go by that alone."""
    if gradient.stride() == parameter.stride():
        return gradient.to(parameter.dtype)
    return torch.empty_like(parameter, requires_grad=False).copy_(gradient)


def _is_finite(norms: Tensor, losses: Tensor) -> Tensor:
    return (losses + norms).abs() < torch.inf


def _kept(table: Tensor, finite: Tensor) -> Tensor:
    return table.masked_fill(~(finite[:, None] & finite), 0)


def compute_dtype(parameters: Mapping[str, Tensor]) -> torch.dtype:
    """Inner products accumulate in float32 or better."""
    dtype = torch.float32
    for parameter in parameters.values():
        dtype = torch.promote_types(dtype, parameter.dtype)
    return dtype
