"""What would each sample do to the model? Inner products of per-sample gradients, exact, from one forward and one backward."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .blocks import Block
from .blocks.assemble import assemble, pairs
from .blocks.block import Index
from .calling import LossFn, Parameters, call, check_batch, check_losses, cross_entropy, trainable, unwrap
from .general import general_rows
from .graph import Graph
from .layout import Layout, Pattern, candidates, fits, pattern, probe_weights, tolerance
from .recorder import Call, Recorder
from .rules import Seen

DEFAULT_MAX_BYTES = 2**28

# How each model's layers lay out their samples, found once by a probe. Kept beside the model, never on it.
_LAYOUTS: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...], tuple[Layout | None, ...]]] = WeakKeyDictionary()


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
    ) -> None:
        self.losses, self.outputs = losses, outputs
        self._blocks, self._parameters, self._max_bytes = list(blocks), parameters, max_bytes
        self._norms: Tensor | None = None

    @property
    def unused(self) -> frozenset[str]:
        """Parameters that no sample's loss depends on."""
        return frozenset(self._parameters).difference(*(block.shapes for block in self._blocks))

    def __len__(self) -> int:
        return len(self.losses)

    def __getitem__(self, index: Index) -> "PerSampleGradients":
        """The gradients of some of the samples: a slice, or a tensor of indices."""
        blocks = [block.select(index) for block in self._blocks]
        part = PerSampleGradients(self.losses[index], None, blocks, self._parameters, self._max_bytes)
        part._norms = None if self._norms is None else self._norms[index]
        return part

    def only(self, names: Sequence[str]) -> "PerSampleGradients":
        """The gradients over some of the parameters."""
        wanted = frozenset(names)
        blocks = [part for block in self._blocks if (part := block.only(wanted)) is not None]
        parameters = {name: p for name, p in self._parameters.items() if name in wanted}
        return PerSampleGradients(self.losses, self.outputs, blocks, parameters, self._max_bytes)

    @property
    def finite(self) -> Tensor:
        """[N] bool: whether the sample's loss and gradient are finite."""
        return torch.isfinite(self.losses) & torch.isfinite(self._square_norms())

    def norms(self) -> Tensor:
        """‖g_n‖, shape [N]."""
        return torch.where(self.finite, self._square_norms(), 0).clamp_min(0).sqrt()

    def gram(self, other: "PerSampleGradients | None" = None) -> Tensor:
        """⟨g_n, h_m⟩, shape [N, M]; `other` are gradients of the same model, and these themselves when it is not given."""
        table = self._raw_gram(self if other is None else other)
        if other is None:
            self._norms = table.diagonal()
            keep = self.finite
            return _where(keep[:, None] & keep, table)
        return _where(self.finite[:, None] & other.finite, table)

    def dot(self, direction: dict[str, Tensor]) -> Tensor:
        """⟨g_n, v⟩, shape [N], for a parameter-shaped v; parameters it leaves out count as zero."""
        if unknown := sorted(set(direction) - set(self._parameters)):
            raise ValueError(f"direction: {', '.join(unknown)} are no trainable parameters of the model")
        products = [block.dot(direction) for block in self._blocks]
        return _where(self.finite, self._sum(products, len(self)))

    def combine(self, weights: Tensor) -> dict[str, Tensor]:
        """Σ_n w_n g_n: the gradient of any weighted choice of the samples, with no second pass."""
        return self._reduce("combine", weights)

    def squares(self, weights: Tensor | None = None) -> dict[str, Tensor]:
        """Σ_n w_n g_n∘g_n, w_n = 1 when none are given: the Fisher diagonal, up to its scale."""
        return self._reduce("squares", torch.ones_like(self._square_norms()) if weights is None else weights)

    def gram_cost(self, other: "PerSampleGradients | None" = None) -> int:
        """Multiplications that `gram` takes, about."""
        if other is None:
            return sum(block.gram_cost(block) for block in self._blocks)
        return sum(
            mine.gram_cost(theirs) for mine, theirs in pairs(self._blocks, other._blocks, self._max_bytes)
        )

    def pass_cost(self) -> int:
        """Multiplications that one `dot` or `combine` takes, about."""
        return sum(block.pass_cost() for block in self._blocks)

    def _reduce(self, verb: str, weights: Tensor) -> dict[str, Tensor]:
        if weights.shape != self.losses.shape:
            raise ValueError(
                f"weights must have shape [{len(self)}], one a sample, got {list(weights.shape)}"
            )
        sums = {}
        for block in self._finite_blocks():
            sums.update(getattr(block, verb)(weights.to(self._dtype)))
        return {
            name: sums[name].to(parameter.dtype)
            if name in sums
            else torch.zeros_like(parameter, requires_grad=False)
            for name, parameter in self._parameters.items()
        }

    def _finite_blocks(self) -> list[Block]:
        """0 × NaN is NaN: what is not finite must be zero in the factors before it is summed over."""
        finite = self.finite
        if not finite.is_cuda and bool(finite.all()):
            return self._blocks
        return [block.masked(finite) for block in self._blocks]

    def _square_norms(self) -> Tensor:
        if self._norms is None:
            self._norms = self._sum([block.square_norms() for block in self._blocks], len(self))
        return self._norms

    def _raw_gram(self, other: "PerSampleGradients") -> Tensor:
        if other is self:
            return self._sum([block.gram(block) for block in self._blocks], len(self), len(self))
        if {n: id(p) for n, p in self._parameters.items()} != {
            n: id(p) for n, p in other._parameters.items()
        }:
            raise ValueError("other: these gradients are of another model, or of other parameters of it")
        matched = pairs(self._blocks, other._blocks, self._max_bytes)
        return self._sum([mine.gram(theirs) for mine, theirs in matched], len(self), len(other))

    def _sum(self, products: Sequence[Tensor], *shape: int) -> Tensor:
        if not products:
            return torch.zeros(*shape, dtype=self._dtype, device=self.losses.device)
        total = products[0]
        for product in products[1:]:
            total = total + product
        return total

    @property
    def _dtype(self) -> torch.dtype:
        return compute_dtype(self._parameters)


def _where(keep: Tensor, values: Tensor) -> Tensor:
    return values if not keep.is_cuda and bool(keep.all()) else torch.where(keep, values, 0)


def compute_dtype(parameters: Mapping[str, Tensor]) -> torch.dtype:
    """Inner products accumulate in float32 or better."""
    dtype = torch.float32
    for parameter in parameters.values():
        dtype = torch.promote_types(dtype, parameter.dtype)
    return dtype


def per_sample_gradients(
    model: nn.Module,
    loss_fn: LossFn | None,
    batch: tuple[Any, Any],
    *,
    parameters: Parameters | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> PerSampleGradients:
    """The gradient of each sample's own loss, in one forward and one backward over the batch.

    `loss_fn(outputs, targets)` returns one loss a sample; None is cross-entropy. `batch` is (inputs, targets): inputs are a tensor,
    a tuple for model(*inputs) or a dict for model(**inputs), batch first. `parameters` (names or modules) restricts to some of the
    trainable parameters. Working memory beyond the layers' own inputs and output gradients stays under `max_bytes`.

    The forward pass draws from torch's generator what the model's own would (dropout); nothing else of the model or of torch's
    state is changed. BatchNorm layers that would use their batch's statistics get them as constants.
    """
    model = unwrap(model)
    inputs, targets, count = check_batch(model, batch)
    wanted = trainable(model, parameters)
    with unchanged_buffers(model):
        return capture(model, loss_fn, inputs, targets, count, wanted, max_bytes)


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Running statistics and the like are afterwards what they were."""
    before = [
        (module, name, tensor, tensor._version, tensor.clone())
        for module in model.modules()
        if module.training
        for name, tensor in module._buffers.items()
        if tensor is not None
    ]
    try:
        yield
    finally:
        for module, name, tensor, version, value in before:
            if tensor._version != version:
                with torch.no_grad():
                    tensor.copy_(value)
            module._buffers[name] = tensor


def capture(
    model: nn.Module,
    loss_fn: LossFn | None,
    inputs: Any,
    targets: Any,
    count: int,
    wanted: dict[str, Tensor],
    max_bytes: int,
) -> PerSampleGradients:
    """One forward, one backward; the layers' inputs and output gradients become blocks."""
    with torch.enable_grad(), Recorder(model, wanted) as recorder:
        outputs = call(model, inputs)
        losses = check_losses((loss_fn or cross_entropy)(outputs, targets), count)
    dtype = compute_dtype(wanted)
    if not losses.requires_grad:
        return PerSampleGradients(losses.detach(), outputs, [], wanted, max_bytes)
    with torch.enable_grad():
        blocks = _blocks(model, losses, recorder.calls, wanted, dtype, max_bytes)
    return PerSampleGradients(
        losses.detach().to(dtype), outputs, assemble(blocks, max_bytes), wanted, max_bytes
    )


def _blocks(
    model: nn.Module,
    losses: Tensor,
    calls: list[Call],
    wanted: dict[str, Tensor],
    dtype: torch.dtype,
    max_bytes: int,
) -> list[Block]:
    graph = Graph(losses)
    calls = [call for call in calls if call.edge.node in graph.nodes]
    uncovered = _uncovered(graph, calls, wanted)
    calls = _still_needed(calls, uncovered)
    key = tuple((call.label, call.module.training, *_pattern(call, len(losses))) for call in calls)
    layouts = _LAYOUTS.setdefault(model, {}).get(key)
    gradients = _edge_gradients(
        losses, calls, torch.ones_like(losses), keep_graph=layouts is None or bool(uncovered)
    )
    if layouts is None:
        layouts = _probe(model, key, losses, calls, gradients)
        uncovered |= {
            n
            for call, layout in zip(calls, layouts, strict=True)
            if layout is None
            for n in call.names.values()
        }
        calls = [call.without(uncovered) for call in calls]
    blocks: list[Block] = []
    for call, layout, gradient in zip(calls, layouts, gradients, strict=True):
        if layout is not None and gradient is not None and call.names:
            blocks += call.rule.blocks(_seen(call, layout, gradient, len(losses), dtype, max_bytes))
    if uncovered:
        blocks += general_rows(losses, {n: p for n, p in wanted.items() if n in uncovered}, dtype, max_bytes)
    return blocks


def _uncovered(graph: Graph, calls: list[Call], wanted: dict[str, Tensor]) -> frozenset[str]:
    """Parameters used more often than the recorded calls explain, or whose recorded input has been changed since."""
    recorded = Counter(name for call in calls for name in call.names.values())
    uses = zip(wanted, graph.uses(wanted.values()), strict=True)
    often = {name for name, count in uses if count > recorded[name]}
    changed = {n for call in calls if call.inputs._version != call.version for n in call.names.values()}
    return frozenset(often | changed)


def _still_needed(calls: list[Call], uncovered: frozenset[str]) -> list[Call]:
    left = [call.without(uncovered) for call in calls]
    return [call for call in left if call.names]


def _pattern(call: Call, count: int) -> Pattern:
    return pattern(call.shape, call.events[1], count)


def _edge_gradients(
    losses: Tensor, calls: list[Call], weights: Tensor, *, keep_graph: bool
) -> Sequence[Tensor | None]:
    """The gradient of Σ w_n loss_n at each call's output; no weight's gradient is computed on the way."""
    if not calls:
        return ()
    edges = [call.edge for call in calls]
    return torch.autograd.grad(losses, edges, weights, retain_graph=keep_graph, allow_unused=True)


def _probe(
    model: nn.Module, key: tuple[Any, ...], losses: Tensor, calls: list[Call], plain: Sequence[Tensor | None]
) -> tuple[Layout | None, ...]:
    """Find each call's layout, and remember it once every call has shown a gradient to judge by."""
    weights = probe_weights(losses)
    weighted = _edge_gradients(losses, calls, weights, keep_graph=True)
    tol = tolerance([gradient for gradient in plain if gradient is not None])
    layouts: list[Layout | None] = []
    for call, before, after in zip(calls, plain, weighted, strict=True):
        options = candidates(_pattern(call, len(losses)))
        if before is None or after is None:
            layouts.append(next(options, None))
            continue
        layouts.append(
            next((o for o in options if fits(o, before, after, weights, call.events[1], tol)), None)
        )
    if all(gradient is not None and bool(gradient.any()) for gradient in plain):
        _LAYOUTS[model][key] = tuple(layouts)
    return tuple(layouts)


def _seen(
    call: Call, layout: Layout, gradient: Tensor, count: int, dtype: torch.dtype, max_bytes: int
) -> Seen:
    inputs = call.inputs.detach()
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    return Seen(
        call.module,
        call.names,
        layout.samples(inputs, count, call.events[0]),
        call.widened(layout.samples(gradient.to(dtype), count, call.events[1])),
        max_bytes,
    )
