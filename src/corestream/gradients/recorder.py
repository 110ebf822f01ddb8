"""Watch one forward pass: every call of a layer that has a rule, with its input and its place in the autograd graph."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .rules import RULES, Rule, attention, batch_norm, rule_of

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
    edge: GradientEdge  # not the output itself, whose gradient is another one after an in-place activation
    shape: torch.Size  # of the output
    events: tuple[int, int]
    # where the layer used some rows of a parameter alone: how many it left out before and after them
    rows: tuple[int, int] | None = None
    statistics: batch_norm.Statistics | None = None  # of the batch, where the layer normalised by them

    def without(self, names: frozenset[str]) -> "Call":
        if not names:
            return self
        return replace(self, names={own: name for own, name in self.names.items() if name not in names})

    def widened(self, gradient: Tensor) -> Tensor:
        """With zeros for the rows that were left out."""
        return gradient if self.rows is None else F.pad(gradient, self.rows)


class Recorder:
    """A context in which the model's calls are recorded; afterwards the model is as it was."""

    def __init__(self, model: nn.Module, wanted: dict[str, Tensor]) -> None:
        self.calls: list[Call] = []
        self.modes: list[bool] = []  # of every module, in order
        self._model = model
        self._names = {id(parameter): name for name, parameter in wanted.items()}
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
        while self._undo:
            self._undo.pop()()

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
        if type(module) is nn.MultiheadAttention:
            if any(id(parameter) in self._names for parameter in module.parameters()):
                self._replace_forward(
                    module, attention.told_forward(module, self._tell_projection(label, module))
                )
            return
        names = {
            own: self._names[id(parameter)]
            for own in ("weight", "bias")  # what rules know; weight_norm and the like add others
            if (parameter := module._parameters.get(own)) is not None and id(parameter) in self._names
        }
        if rule is None or not names:
            return

        before = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            output = before(*args, **kwargs)
            inputs = args[0] if args else kwargs.get("input")
            # functional_call, or a hook, may have put something else in a parameter's place
            own = all(self._names.get(id(module._parameters.get(n))) == name for n, name in names.items())
            if own and isinstance(output, Tensor) and output.requires_grad and isinstance(inputs, Tensor):
                statistics = before.statistics if isinstance(before, batch_norm.FrozenForward) else None
                self._record(label, rule, module, names, inputs, output, statistics=statistics)
            return output

        # not a hook: another one may replace the output, and a layer without hooks is called faster
        self._replace_forward(module, forward)

    def _record(
        self, label: str, rule: Rule, module: nn.Module, names: dict[str, str], inputs: Tensor, output: Tensor,
        rows: tuple[int, int] | None = None, statistics: batch_norm.Statistics | None = None,
    ) -> None:  # fmt: skip
        events = rule.events(module, inputs)
        edge = get_gradient_edge(output)
        call = Call(
            label, rule, module, names, inputs, inputs._version, edge, output.shape, events, rows, statistics
        )
        self.calls.append(call)

    def _replace_forward(self, module: nn.Module, forward: Any) -> None:
        before = module.__dict__.get("forward")
        module.__dict__["forward"] = forward

        def undo() -> None:
            del module.__dict__["forward"]
            if before is not None:
                module.__dict__["forward"] = before

        self._undo.append(undo)

    def _tell_projection(self, label: str, module: nn.Module) -> attention.Tell:
        rule = RULES[nn.Linear]

        def tell(inputs: Tensor, weight: Tensor, bias: Tensor | None, output: Tensor) -> None:
            if not output.requires_grad:
                return
            found = {"weight": self._locate(weight), "bias": None if bias is None else self._locate(bias)}
            by_rows: dict[tuple[int, int] | None, dict[str, str]] = {}
            for own, place in found.items():
                if place is not None:
                    by_rows.setdefault(place[1], {})[own] = place[0]
            for rows, names in by_rows.items():
                self._record(label, rule, module, names, inputs, output, rows)

        return tell

    def _locate(self, tensor: Tensor) -> tuple[str, tuple[int, int] | None] | None:
        """The wanted parameter that `tensor` is, or some rows of, with the rows before and after."""
        if id(tensor) in self._names:
            return self._names[id(tensor)], None
        whole = tensor._base
        if whole is None or id(whole) not in self._names or tensor.shape[1:] != whole.shape[1:]:
            return None
        start = (tensor.storage_offset() - whole.storage_offset()) // whole.stride(0)
        return self._names[id(whole)], (start, whole.shape[0] - start - tensor.shape[0])


def uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    """Parts that are compiled by themselves run as they are; a whole model that is has been unwrapped."""
    compiled = any(
        type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
        for module in model.modules()
    )
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()
