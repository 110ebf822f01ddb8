"""One forward and one backward over a batch, watched layer by layer."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

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
    leaves,
    map_inputs,
    trainable,
    unwrap,
)
from .due import is_due
from .general import Spoiled, general_rows, stand_ins
from .graph import Graph
from .identity import identity
from .layout import Fingerprint, Layout, Pattern, candidates, pattern, probe_weights
from .per_sample import PerSampleGradients, compute_dtype
from .recorder import Call, Recorder
from .rules import Seen

DEFAULT_MAX_BYTES = 2**28
# Of a model, one for each loss and shapes seen; bounded, for a program may make a new loss at every step.
KNOWN_READINGS = 64

Prints = dict[Layout, Fingerprint]


class Reading(NamedTuple):
    """How each call lays out its samples, None where no way fits; and whether samples were seen to depend on each other."""

    layouts: tuple[Layout | None, ...]
    coupled: bool
    sure: bool  # every call has shown a gradient that leaves no doubt

    def contradicts(self, earlier: "Reading") -> bool:
        """Whether samples do not lie as an earlier batch's did."""
        lost = any(
            now is None and then is not None for now, then in zip(self.layouts, earlier.layouts, strict=True)
        )
        return lost or (self.sure and self.layouts != earlier.layouts)


# what was found, and how often it was asked for; None where one batch has contradicted another: then each is looked at
Known = dict[tuple[Any, ...], tuple[Reading | None, int]]

# How each model's layers lay out their samples, found once by a probe. Kept beside the model, never on it.
_READINGS: WeakKeyDictionary[nn.Module, Known] = WeakKeyDictionary()


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
    wanted = trainable(model, parameters)
    inputs, targets, _ = check_batch(next(iter(wanted.values())).device, batch)
    with unchanged_buffers(model):
        return capture(model, loss_fn, inputs, targets, wanted, max_bytes)


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Running statistics and the like are afterwards what they were, and so are parameters that the forward pass replaces, or rescales
    as an embedding with `max_norm` does. A buffer whose shape has changed is left: the model knows of it."""
    replaceable = [
        (module._parameters, dict(module._parameters))
        for module in model.modules()
        if not isinstance(module, torch.jit.ScriptModule)
    ]
    rescaled = [
        (weight, weight.detach().clone())
        for module in model.modules()
        if getattr(module, "max_norm", None) is not None
        and isinstance(weight := getattr(module, "weight", None), Tensor)
    ]
    before = [
        (module, name, tensor, tensor.clone())
        for module in model.modules()
        for name, tensor in module._buffers.items()
        if tensor is not None
    ]
    try:
        yield
    finally:
        for now_held, held in replaceable:
            now_held.update({name: parameter for name, parameter in held.items() if name in now_held})
        for weight, value in rescaled:
            weight.data.copy_(value)
        for module, name, tensor, value in before:
            now = module._buffers[name] if name in module._buffers else None  # noqa: SIM401 - a scripted one has no get
            if now is None or now.shape != value.shape:
                continue
            if tensor.layout == torch.strided:
                # by .data: restoring must not count as a change
                tensor.data.copy_(value)
            module._buffers[name] = tensor


def capture(
    model: nn.Module,
    loss_fn: LossFn | None,
    inputs: Any,
    targets: Any,
    wanted: dict[str, Tensor],
    max_bytes: int,
) -> PerSampleGradients:
    """The gradients of a checked batch; a second pass only where one sample's NaN would reach the others."""
    try:
        grads = _pass(model, loss_fn, inputs, targets, wanted, max_bytes)
        if not grads.general or grads.losses.is_cuda or grads.all_finite:
            return grads
        bad = _bad_inputs(inputs)
        if not bool(bad.any()) and isinstance(targets, Tensor):
            bad = _bad_alone(model, loss_fn, inputs, targets, wanted, max_bytes, ~grads.finite)
        if not bool(bad.any()) or bool(bad.all()):
            return grads
    except Spoiled as spoiled:
        bad = spoiled.bad
    if not isinstance(targets, Tensor):
        raise Spoiled(bad)
    rows = stand_ins(bad)
    grads = _pass(model, loss_fn, map_inputs(lambda x: x[rows], inputs), targets[rows], wanted, max_bytes)
    grads.losses = torch.where(bad, torch.nan, grads.losses)
    return grads


def _bad_inputs(inputs: Any) -> Tensor:
    """Samples with an input that is not finite: a loss may be finite all the same, and its gradient not."""
    count = len(leaves(inputs)[0])
    parts = [torch.isfinite(x).reshape(count, -1).all(1) for x in leaves(inputs) if x.is_floating_point()]
    return ~torch.stack(parts).all(0) if parts else torch.zeros(count, dtype=torch.bool)


def _bad_alone(
    model: nn.Module,
    loss_fn: LossFn | None,
    inputs: Any,
    targets: Tensor,
    wanted: dict[str, Tensor],
    max_bytes: int,
    suspects: Tensor,
) -> Tensor:
    """Samples whose gradient is not finite even without the others: a loss may be finite and have none, as a length at zero."""
    bad = torch.zeros_like(suspects)
    for n in suspects.nonzero().flatten().tolist():
        twice = torch.tensor([n, n], device=targets.device)  # BatchNorm takes no sample alone
        some = map_inputs(lambda x: x[twice], inputs)  # noqa: B023 - called at once
        bad[n] = not _pass(model, loss_fn, some, targets[twice], wanted, max_bytes).all_finite
    return bad


def _pass(
    model: nn.Module,
    loss_fn: LossFn | None,
    inputs: Any,
    targets: Any,
    wanted: dict[str, Tensor],
    max_bytes: int,
) -> PerSampleGradients:
    """One forward, one backward; the layers' inputs and output gradients become blocks."""
    dtype = compute_dtype(wanted)
    with torch.inference_mode(False), torch.enable_grad(), Recorder(model, wanted) as recorder:
        outputs = call(model, map_inputs(_ordinary, inputs))
        judge = cross_entropy if loss_fn is None else loss_fn
        losses = check_losses(judge(outputs, _ordinary(targets)), len(leaves(inputs)[0]))
        if not losses.requires_grad:
            return PerSampleGradients(losses.detach().to(dtype), outputs, [], wanted, max_bytes)
        calls, recorder.calls = recorder.calls, []  # a checkpoint's second forward tells nothing new
        state = (identity(loss_fn), *recorder.modes)
        # still inside: a checkpoint must find the same BatchNorm again when the backward pass comes
        blocks, general, coupled = _blocks(model, losses, calls, state, wanted, dtype, max_bytes)
    # without their graph, which the general path has kept
    outputs, assembled = tree_map_only(Tensor, Tensor.detach, outputs), assemble(blocks, max_bytes)
    return PerSampleGradients(
        losses.detach().to(dtype), outputs, assembled, wanted, max_bytes, general, coupled
    )


def _blocks(
    model: nn.Module,
    losses: Tensor,
    calls: list[Call],
    state: tuple[Any, ...],
    wanted: dict[str, Tensor],
    dtype: torch.dtype,
    max_bytes: int,
) -> tuple[list[Block], frozenset[str], bool]:
    """The gradients, the parameters for which no rule holds, and whether samples were seen to depend on each other."""
    graph = Graph(losses)
    calls = [one for one in calls if one.edge.node in graph.nodes]
    uncovered = _uncovered(graph, calls, wanted)
    calls = _still_needed(calls, uncovered)
    key = (state, graph.kinds(), *((one.label, *_pattern(one, len(losses))) for one in calls))
    known = _READINGS.setdefault(model, {})
    if graph.moves_samples(len(losses)):
        known = {}  # what is found of this batch holds for it alone
    backward = Backward(graph, losses, [one.edge for one in calls])
    before = {name: Held.of(p) for name, p in wanted.items()} if graph.has_own_functions() else {}
    layouts, coupled, _ = _reading(known, key, backward, calls)
    uncovered |= {
        name
        for one, layout in zip(calls, layouts, strict=True)
        if layout is None
        for name in one.names.values()
    }
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
    blocks = [block for place in sorted(found) for block in found[place]]
    if uncovered:
        blocks += general_rows(losses, {n: p for n, p in wanted.items() if n in uncovered}, dtype, max_bytes)
    return blocks, uncovered, coupled


class Held(NamedTuple):
    """The gradient that a parameter holds already."""

    gradient: Tensor | None
    version: int
    copy: Tensor | None

    @classmethod
    def of(cls, parameter: Tensor) -> "Held":
        gradient = parameter.grad
        return cls(None, 0, None) if gradient is None else cls(gradient, gradient._version, gradient.clone())

    def put_back(self, parameter: Tensor) -> bool:
        """Whether it had to be."""
        now = parameter.grad
        if now is self.gradient and (now is None or now._version == self.version):
            return False
        parameter.grad = self.copy
        return True


def _refuse_hidden(wanted: dict[str, Tensor], before: dict[str, Held]) -> None:
    """A Function that goes back through parameters by itself, as a reversible block does, leaves their gradients on them: summed over
    the samples, and unknown to autograd."""
    if hidden := [name for name, held in before.items() if held.put_back(wanted[name])]:
        raise ValueError(
            f"a torch.autograd.Function of the model computes the gradients of {', '.join(hidden)} in its own backward pass, so that "
            "those of single samples cannot be known: let autograd do it, or freeze these parameters"
        )


def _uncovered(graph: Graph, calls: list[Call], wanted: dict[str, Tensor]) -> frozenset[str]:
    """Parameters used more often than the recorded calls explain, or whose recorded input has been changed since."""
    recorded = Counter(name for one in calls for name in one.names.values())
    uses = dict(zip(wanted, graph.uses(wanted.values()), strict=True))
    if graph.hides_parameters():
        raise ValueError(
            "the model checkpoints activations with use_reentrant=True, which hides the parameters inside from autograd: "
            "give torch.utils.checkpoint use_reentrant=False"
        )
    often = {name for name, count in uses.items() if count > recorded[name]}
    changed = {n for one in calls if one.inputs._version != one.version for n in one.names.values()}
    return frozenset(often | changed)


def _still_needed(calls: list[Call], uncovered: frozenset[str]) -> list[Call]:
    left = [one.without(uncovered) for one in calls]
    return [one for one in left if one.names]


def _pattern(one: Call, count: int) -> Pattern:
    return pattern(one.shape, one.events[1], count)


def _reading(known: Known, key: tuple[Any, ...], backward: Backward, calls: list[Call]) -> Reading:
    """Each call's layout, as it is known from earlier batches or found now. What is known is looked at again now and then, for an
    operation that nobody has thought of may put the samples of a later batch in another order."""
    earlier, asked = known.get(key, (None, 0))
    if earlier is not None and not is_due(asked, backward.losses.device):
        known[key] = earlier, asked + 1
        return earlier
    found = _probe(backward, calls)
    if earlier is not None:
        known[key] = None if found.contradicts(earlier) else earlier, asked + 1
    elif found.sure and key not in known:
        known[key] = found, 1
        if len(known) > KNOWN_READINGS:
            del known[next(iter(known))]
    return found


def _probe(backward: Backward, calls: list[Call]) -> Reading:
    """Find each call's layout."""
    count = len(backward.losses)
    options = [list(candidates(_pattern(one, count))) for one in calls]
    weights = probe_weights(backward.losses)
    plain, weighted = [{} for _ in calls], [{} for _ in calls]  # type: list[Prints], list[Prints]

    def print_into(prints: list[Prints]) -> Callable[[int, Tensor], None]:
        def take(place: int, gradient: Tensor) -> None:
            event = calls[place].events[1]
            prints[place] = {o: Fingerprint.of(o.samples(gradient, count, event)) for o in options[place]}

        return take

    backward.run(torch.ones_like(weights), print_into(plain), keep_graph=True)
    backward.run(weights, print_into(weighted), keep_graph=True)
    tol = max((print_.tolerance for prints in plain for print_ in prints.values()), default=0.0)
    layouts: list[Layout | None] = []
    sure = True
    for before, after, open_ones in zip(plain, weighted, options, strict=True):
        fitting = [o for o in open_ones if o not in before or before[o].fits(after[o], weights, tol)]
        layouts.append(fitting[0] if fitting else None)
        shown = all(print_.any() for print_ in before.values()) and len(before) == len(open_ones)
        sure = sure and shown and (len(fitting) < 2 or count == 1)
    # samples lie in one of the known ways, and yet the gradient of none is its own loss's alone
    coupled = any(
        layout is None and open_ones and not _counts_positions(one.inputs)
        for one, layout, open_ones in zip(calls, layouts, options, strict=True)
    )
    return Reading(tuple(layouts), coupled, sure)


def _counts_positions(inputs: Tensor) -> bool:
    """Whether an embedding's input is 0, 1, 2, …, as that of positions is: all samples share its rows, and none is one's own."""
    whole = not inputs.is_floating_point() and inputs.numel() > 0
    return whole and torch.equal(inputs.flatten(), torch.arange(inputs.numel()).to(inputs))


def _ordinary(x: Any) -> Any:
    """Tensors made under inference_mode cannot be part of a backward pass; their copies can."""
    return tree_map_only(Tensor, lambda one: one.clone() if one.is_inference() else one, x)


def _seen(
    one: Call, layout: Layout, gradient: Tensor, count: int, dtype: torch.dtype, max_bytes: int
) -> Seen:
    inputs = one.inputs.detach()
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    return Seen(
        one.module,
        one.names,
        layout.samples(inputs, count, one.events[0]),
        one.widened(layout.samples(gradient.to(dtype), count, one.events[1])),
        max_bytes,
        one.statistics,
    )
