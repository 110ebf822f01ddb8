"""Watch one forward pass: every call of a layer that has a rule, with its input and its place in the autograd graph."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .backward import Place
from .functions import Functions, counts_positions
from .layout import candidates, pattern
from .made import Source
from .rules import RULES, Rule, attention, batch_norm, recurrent, rule_of

OWN = frozenset({"forward", "_conv_forward"})  # what computes a layer's output


@dataclass(frozen=True)
class Call:
    """One call of a layer during the forward pass."""

    label: str
    rule: Rule
    module: nn.Module
    names: dict[str, str]  # of each wanted parameter: its name in the layer ("weight") -> in the model
    inputs: Tensor
    version: int  # of the input: an in-place change afterwards would make it useless
    place: Place  # of the output's gradient
    shape: torch.Size  # of the output
    events: tuple[int, int]
    # where the layer used some rows of a parameter alone: how many it left out before and after them
    rows: tuple[int, int] | None = None
    statistics: batch_norm.Statistics | None = None  # of the batch, where the layer normalised by them
    source: Source | None = None  # what is made of the parameters, where it stands in their place
    has_samples: bool = True  # whether its input is known to have some
    nodes: Sequence[Any] | None = None  # of the graph, where it uses its parameters at several

    def uses(self, graph: Container[Any]) -> Mapping[str, int]:
        """How many of each parameter's uses in the graph this call explains."""
        if self.source is not None:
            return {name: self.source.ways[name] for name in self.names.values()}
        times = 1 if self.nodes is None else sum(node in graph for node in self.nodes)
        return dict.fromkeys(self.names.values(), times)

    @property
    def is_changed(self) -> bool:
        """Whether what it took in has been changed in place since."""
        changed = self.source is not None and self.source.is_changed
        return changed or self.inputs._version != self.version

    @property
    def told(self) -> Mapping[str, str]:
        """The names that its rule gets. What is made of parameters has none: its rows are those of nobody until they are carried back."""
        return self.names if self.source is None else {self.source.place: ""}

    def without(self, names: frozenset[str]) -> "Call":
        if not names:
            return self
        return replace(self, names={own: name for own, name in self.names.items() if name not in names})

    def widened(self, gradient: Tensor) -> Tensor:
        """With zeros for the rows that were left out."""
        return gradient if self.rows is None else F.pad(gradient, self.rows)


class Recorder:
    """A context in which the model's calls are recorded; afterwards the model is as it was."""

    def __init__(
        self,
        model: nn.Module,
        wanted: dict[str, Tensor],
        count: int,
        *,
        watch: bool = False,
        shared: Collection[str] = (),
    ) -> None:
        """With `watch` torch's functions are watched: layers with a rule have not covered all in an earlier pass. `shared` are tables of
        which all samples look up the same rows."""
        self.calls: list[Call] = []
        self.modes: list[bool] = []  # of every module, in order
        self._model, self._count, self._shared = model, count, shared
        self._watches_functions = watch
        self._names = {id(parameter): name for name, parameter in wanted.items()}
        self._covered: set[str] = set()  # by layers that have a rule
        self._looks_up = False  # whether a layer may look up the same rows for all samples
        self._functions: Functions | None = None
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> "Recorder":
        try:
            # a compiled part would be compiled anew for a forward that watches, and for ever run uncompiled after some of those
            parts = ExitStack()
            parts.enter_context(uncompiled(self._model))
            self._undo.append(parts.close)
            for label, module in self._model.named_modules():
                self._watch(label, module)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._functions = None  # which knows of this, and of the whole graph
        while self._undo:
            self._undo.pop()()

    def functions(self) -> AbstractContextManager[Any]:
        """A context that watches torch's functions too, where layers may not tell all."""
        covered = self._covered.issuperset(self._names.values())
        if covered and not self._looks_up and not self._watches_functions:
            return nullcontext()
        self._functions = Functions(self._names, self._count, self._record, self._shared)
        return self._functions

    @property
    def made(self) -> set[Any]:
        """Nodes of the graph that are made of parameters alone."""
        return set() if self._functions is None else self._functions.made.nodes

    def _watch(self, label: str, module: nn.Module) -> None:
        self.modes.append(module.training)
        if isinstance(module, torch.jit.ScriptModule):
            return  # what it computes is not written in its layers
        # the user's own forward on this layer: no rule knows what it does
        if not OWN.isdisjoint(module.__dict__):
            if batch_norm.uses_batch_statistics(module):
                self._replace_forward(module, batch_norm.OwnFrozenForward(module))  # type: ignore[arg-type]
            return
        rule = rule_of(type(module))
        if batch_norm.uses_batch_statistics(module):
            frozen = batch_norm.FrozenForward if rule is not None else batch_norm.OwnFrozenForward
            self._replace_forward(module, frozen(module))  # type: ignore[arg-type]
        family = attention if type(module) is nn.MultiheadAttention else recurrent
        if family is attention or recurrent.has_loop(module):
            if any(id(parameter) in self._names for parameter in module.parameters()):
                told = family.told_forward(module, self._tell_projection(label, module))
                self._covered.update(self._names.get(id(p), "") for p in module.parameters())
                self._replace_forward(module, self._alone(told))
            return
        names = {
            own: self._names[id(parameter)]
            for own in ("weight", "bias")  # what rules know; weight_norm and the like add others
            if (parameter := module._parameters.get(own)) is not None and id(parameter) in self._names
        }
        others = len(module._parameters) > len(names) and any(
            id(parameter) in self._names for own, parameter in module._parameters.items() if own not in names
        )
        if rule is None or not names or others:  # such as what a hook makes the weight of
            return

        self._covered.update(names.values())
        looks_up = type(module) is nn.Embedding
        self._looks_up |= looks_up
        shared = looks_up and names["weight"] in self._shared
        before = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            output = (before if self._functions is None else self._alone(before))(*args, **kwargs)
            inputs = args[0] if args else kwargs.get("input")
            if looks_up and self._functions is not None and (shared or counts_positions(inputs, self._count)):
                return output  # a table that all samples share, made of parameters alone
            # functional_call, or a hook, may have put something else in a parameter's place
            own = all(self._names.get(id(module._parameters.get(n))) == name for n, name in names.items())
            if own and isinstance(output, Tensor) and output.requires_grad and isinstance(inputs, Tensor):
                statistics = before.statistics if isinstance(before, batch_norm.FrozenForward) else None
                self._record(label, rule, module, names, inputs, output, statistics=statistics)
            return output

        # not a hook: another one may replace the output, and a layer without hooks is called faster
        self._replace_forward(module, forward)

    def _alone(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's forward pass, the functions in which are nobody else's."""

        def alone(*args: Any, **kwargs: Any) -> Any:
            functions = self._functions
            if functions is None:
                return forward(*args, **kwargs)
            functions.paused += 1
            try:
                return forward(*args, **kwargs)
            finally:
                functions.paused -= 1

        return alone

    def _record(
        self, label: str, rule: Rule, module: nn.Module, names: dict[str, str], inputs: Tensor, output: Tensor,
        rows: tuple[int, int] | None = None, statistics: batch_norm.Statistics | None = None,
        source: Source | None = None, nodes: Sequence[Any] | None = None, in_order: bool = True,
    ) -> bool:  # fmt: skip
        """False where there are no samples in it: if it is made of parameters alone, they come in later."""
        events, place = rule.events(module, inputs), Place.of(output)
        if self._functions is not None:
            somewhere = any(candidates(pattern(output.shape, events[1], self._count)))
            if not somewhere or self._functions.made.is_free_of_samples(inputs):
                return False
            self._functions.made.has_samples(output, place.edge.node)
        # places in a table may be the same for all samples, as positions are
        by_sample = inputs.is_floating_point() or inputs.shape[:1] == (self._count,)
        has_samples = by_sample and source is None and in_order
        call = Call(
            label,
            rule,
            module,
            names,
            inputs,
            inputs._version,
            place,
            output.shape,
            events,
            rows,
            statistics,
            source,
            has_samples,
            nodes,
        )
        self.calls.append(call)
        return True

    def _replace_forward(self, module: nn.Module, forward: Any) -> None:
        before = module.__dict__.get("forward")
        module.__dict__["forward"] = forward

        def undo() -> None:
            del module.__dict__["forward"]
            if before is not None:
                module.__dict__["forward"] = before

        self._undo.append(undo)

    def _tell_projection(self, label: str, module: nn.Module) -> recurrent.Tell:
        """Of linear layers inside one that is a single function."""
        rule = RULES[nn.Linear]

        def tell(
            inputs: Tensor,
            weight: Tensor,
            bias: Tensor | None,
            output: Tensor,
            nodes: Sequence[Any] | None = None,
            in_order: bool = True,
        ) -> bool:
            if not output.requires_grad:
                return True
            found = {"weight": self._locate(weight), "bias": None if bias is None else self._locate(bias)}
            by_rows: dict[tuple[int, int] | None, dict[str, str]] = {}
            for own, place in found.items():
                if place is not None:
                    by_rows.setdefault(place[1], {})[own] = place[0]
            taken = [
                self._record(label, rule, module, names, inputs, output, rows, nodes=nodes, in_order=in_order)
                for rows, names in by_rows.items()
            ]
            return all(taken)

        return tell

    def _locate(self, tensor: Tensor) -> tuple[str, tuple[int, int] | None] | None:
        """The wanted parameter that `tensor` is, or some rows of, with the rows before and after."""
        if id(tensor) in self._names:
            return self._names[id(tensor)], None
        whole = tensor._base
        if whole is None or id(whole) not in self._names or tensor.shape[1:] != whole.shape[1:]:
            return None
        start, within = divmod(int(tensor.storage_offset() - whole.storage_offset()), whole.stride(0))
        if within or tensor.stride() != whole.stride():
            return None  # parts of rows
        return self._names[id(whole)], (start, whole.shape[0] - start - tensor.shape[0])


def uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    """Parts that are compiled by themselves run as they are; a whole model that is has been unwrapped."""
    compiled = any(
        type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
        for module in model.modules()
    )
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()
