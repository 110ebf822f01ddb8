"""One forward and one backward over a batch, watched layer by layer."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..counts import check_counts
from .backward import Backward
from .blocks import Block
from .blocks.assemble import assemble
from .calling import (
    LossFn,
    Parameters,
    call,
    check_batch,
    check_losses,
    cross_entropy,
    finite_samples,
    leaves,
    map_inputs,
    trainable,
    unwrap,
)
from .general import Spoiled, carried_back, general_rows, stand_ins
from .graph import Graph
from .identity import identity
from .layout import Layout
from .per_sample import PerSampleGradients, compute_dtype
from .reading import known_readings, pattern_of, read_layouts
from .recorder import Call, Recorder
from .restoring import Held, unchanged_buffers
from .rules import Seen

DEFAULT_MAX_BYTES = 2**28

Pass = Callable[[Any, Any], PerSampleGradients]  # over some inputs and targets

# Of models in which rules did not cover all in some pass: tables of which all samples look up the same rows.
_SHARED: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()


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
    state is changed. Only where some samples are not finite and the general path would spread it, there are further forward passes.
    BatchNorm layers that would use their batch's statistics get them as constants. Layers keep their inputs, not copies: the batch must
    not be changed in place while its gradients are in use. Hooks on parameters are called on the general path alone.
    """
    model = unwrap(model)
    check_counts(max_bytes=max_bytes)
    wanted = trainable(model, parameters)
    inputs, targets, _ = check_batch(next(iter(wanted.values())).device, batch)
    with unchanged_buffers(model, loss_fn):
        return capture(model, loss_fn, inputs, targets, wanted, max_bytes)


def capture(
    model: nn.Module,
    loss_fn: LossFn | None,
    inputs: Any,
    targets: Any,
    wanted: dict[str, Tensor],
    max_bytes: int,
) -> PerSampleGradients:
    """The gradients of a checked batch; a second pass only where one sample's NaN would reach the others."""
    run: Pass = partial(_pass, model, loss_fn, wanted, max_bytes)
    try:
        grads = run(inputs, targets)
        if not grads.general or grads.losses.is_cuda:
            return grads
        suspects = ~grads.rows_are_finite()
        if not bool(suspects.any()):
            return grads
        bad = ~finite_samples(inputs)  # a loss may be finite all the same, and its gradient not
        if not bool(bad.any()) and isinstance(targets, Tensor):
            bad = _bad_alone(run, inputs, targets, suspects)
        if not bool(bad.any()) or bool(bad.all()):
            return grads
    except Spoiled as spoiled:
        bad = spoiled.bad
    if not isinstance(targets, Tensor):
        raise Spoiled(bad)
    rows = stand_ins(bad)
    grads = run(map_inputs(lambda x: x[rows], inputs), targets[rows])
    grads.losses = torch.where(bad, torch.nan, grads.losses)
    return grads


def _bad_alone(run: Pass, inputs: Any, targets: Tensor, suspects: Tensor) -> Tensor:
    """Samples whose gradient is not finite even without the others: a loss may be finite and have none, as a length at zero."""
    bad = torch.zeros_like(suspects)
    for n in suspects.nonzero().flatten().tolist():
        copies = torch.full((len(targets),), n, device=targets.device)
        try:  # as many as there were: BatchNorm takes no sample alone, and a loss may have a number for each
            some = map_inputs(lambda x: x[copies], inputs)  # noqa: B023 - called at once
            bad[n] = not run(some, targets[copies]).all_finite
        except Spoiled:
            bad[n] = True
    return bad


def _pass(
    model: nn.Module,
    loss_fn: LossFn | None,
    wanted: dict[str, Tensor],
    max_bytes: int,
    inputs: Any,
    targets: Any,
) -> PerSampleGradients:
    """One forward, one backward; the layers' inputs and output gradients become blocks."""
    dtype = compute_dtype(wanted)
    count = len(leaves(inputs)[0])
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        Recorder(
            model, wanted, count, watch=model in _SHARED, shared=_SHARED.get(model, frozenset())
        ) as recorder,
    ):
        with recorder.functions():
            outputs = call(model, map_inputs(_ordinary, inputs))
        judge = cross_entropy if loss_fn is None else loss_fn
        losses = check_losses(judge(outputs, _ordinary(targets)), count)
        if not losses.requires_grad:
            return PerSampleGradients(losses.detach().to(dtype), outputs, [], wanted, max_bytes)
        calls, recorder.calls = recorder.calls, []  # a checkpoint's second forward tells nothing new
        state = (identity(loss_fn), *recorder.modes)
        # still inside: a checkpoint must find the same BatchNorm again when the backward pass comes
        blocks, general, coupled = _blocks(
            model, losses, calls, recorder.made - {losses.grad_fn}, state, wanted, dtype, max_bytes
        )
    # without their graph, which the general path has kept
    outputs = (
        outputs.detach() if isinstance(outputs, Tensor) else tree_map_only(Tensor, Tensor.detach, outputs)
    )
    assembled = assemble(blocks, max_bytes)
    return PerSampleGradients(
        losses.detach().to(dtype), outputs, assembled, wanted, max_bytes, general, coupled
    )


def _blocks(
    model: nn.Module,
    losses: Tensor,
    calls: list[Call],
    made: set[Any],
    state: tuple[Any, ...],
    wanted: dict[str, Tensor],
    dtype: torch.dtype,
    max_bytes: int,
) -> tuple[list[Block], frozenset[str], bool]:
    """The gradients, the parameters for which no rule holds, and whether samples were seen to depend on each other."""
    graph = Graph(losses)
    calls = [one for one in calls if one.place.edge.node in graph.nodes]
    uncovered = _uncovered(graph, calls, wanted, made) | _too_large(
        calls, wanted, len(losses), dtype, max_bytes
    )
    calls = _still_needed(calls, uncovered)
    key = (state, graph.kinds(), *((one.label, *pattern_of(one, len(losses))) for one in calls))
    known = known_readings(model)
    if graph.moves_samples(len(losses)):
        known = {}  # what is found of this batch holds for it alone
    backward = Backward(graph, losses, [one.place for one in calls])
    before = {name: Held.of(p) for name, p in wanted.items()} if graph.has_own_functions() else {}
    layouts, coupled, *_ = read_layouts(known, key, backward, calls)
    uncovered |= {
        name
        for one, layout in zip(calls, layouts, strict=True)
        if layout is None
        for name in one.names.values()
    }
    if uncovered:
        _SHARED.setdefault(model, set()).update(
            name
            for one, layout in zip(calls, layouts, strict=True)
            if layout is None and not one.inputs.is_floating_point()
            for name in one.names.values()
        )
    calls = [one.without(uncovered) for one in calls]
    found: dict[int, list[Block]] = {}

    @torch.no_grad()
    def take(place: int, gradient: Tensor) -> None:
        """What a rule makes small is small before the backward pass goes on."""
        one, layout = calls[place], layouts[place]
        if layout is not None and one.names:
            found[place] = one.rule.blocks(_seen(one, layout, gradient, len(losses), dtype, max_bytes))

    backward.run(torch.ones_like(losses), take, keep_graph=bool(uncovered))
    _refuse_hidden(wanted, before)
    blocks = [
        block for place in sorted(found) for block in _of_parameters(calls[place], found[place], wanted)
    ]
    if uncovered:
        blocks += general_rows(losses, {n: p for n, p in wanted.items() if n in uncovered}, dtype, max_bytes)
    return blocks, uncovered, coupled


def _of_parameters(one: Call, blocks: list[Block], wanted: dict[str, Tensor]) -> list[Block]:
    """The gradients with respect to the parameters themselves."""
    if one.source is None:
        return blocks
    parameters = {name: wanted[name] for name in one.names.values()}
    return [
        rows
        for block in blocks
        for values in block.rows(slice(None)).values()
        for rows in carried_back(one.source.tensor, values, parameters)
    ]


def _too_large(
    calls: list[Call], wanted: dict[str, Tensor], count: int, dtype: torch.dtype, max_bytes: int
) -> frozenset[str]:
    """Parameters that are used through something made of them, where their rows would not fit the budget."""
    sources = [one.source for one in calls if one.source is not None]
    names = frozenset(name for source in sources for name in source.ways)
    entries = sum(wanted[name].numel() for name in names) + sum(source.tensor.numel() for source in sources)
    return names if count * entries * dtype.itemsize > max_bytes else frozenset()


def _refuse_hidden(wanted: dict[str, Tensor], before: dict[str, Held]) -> None:
    """A Function that goes back through parameters by itself, as a reversible block does, leaves their gradients on them: summed over
    the samples, and unknown to autograd."""
    if hidden := [name for name, held in before.items() if held.put_back(wanted[name])]:
        raise ValueError(
            f"a torch.autograd.Function of the model computes the gradients of {', '.join(hidden)} in its own backward pass, so that "
            "those of single samples cannot be known: let autograd do it, or freeze these parameters"
        )


def _uncovered(graph: Graph, calls: list[Call], wanted: dict[str, Tensor], made: set[Any]) -> frozenset[str]:
    """Parameters used more often than the recorded calls explain, or whose recorded input has been changed since."""
    recorded: Counter[str] = Counter()
    for one in calls:
        recorded.update(one.uses(graph.nodes))
    uses = dict(zip(wanted, graph.uses(wanted.values(), made), strict=True))
    if graph.hides_parameters():
        raise ValueError(
            "the model checkpoints activations with use_reentrant=True, which hides the parameters inside from autograd: "
            "give torch.utils.checkpoint use_reentrant=False"
        )
    often = {name for name, count in uses.items() if count > recorded[name]}
    changed = {n for one in calls if one.is_changed for n in one.names.values()}
    return frozenset(often | changed)


def _still_needed(calls: list[Call], uncovered: frozenset[str]) -> list[Call]:
    left = [one.without(uncovered) for one in calls]
    return [one for one in left if one.names]


def _ordinary(x: Any) -> Any:
    """Tensors made under inference_mode cannot be part of a backward pass; their copies can."""
    if isinstance(x, Tensor):
        return x.clone() if x.is_inference() else x
    return tree_map_only(Tensor, _ordinary, x)


def _seen(
    one: Call, layout: Layout, gradient: Tensor, count: int, dtype: torch.dtype, max_bytes: int
) -> Seen:
    inputs = one.inputs.detach()
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    return Seen(
        one.module,
        one.told,
        layout.samples(inputs, count, one.events[0]),
        one.widened(layout.samples(gradient.to(dtype), count, one.events[1])),
        max_bytes,
        one.statistics,
    )
