"""Parameters that a model uses by itself, outside of a layer that has a rule: x * self.gain, x + self.positions, x @ self.weight.

While the model runs, a call of one of torch's functions that takes such a parameter is recorded as a call of the layer that does the same.
Something made of parameters alone may take their place (1 + gain, rows of a table of positions): the gradient with respect to that is
carried back to the parameters, sample by sample, through the few operations that made it.
"""

from collections.abc import Container, Mapping
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .blocks import Block, Rows
from .equivalents import LAYERS, NO_LAYER, TURNED
from .made import Made, Source
from .rules import Rule, Seen


class Tell(Protocol):
    """Where a call is recorded: its label and rule, the layer, the parameters' names, input and output."""

    def __call__(
        self, label: str, rule: Rule, module: nn.Module, names: dict[str, str], inputs: Tensor, output: Tensor,
        *, statistics: tuple[Tensor, Tensor] | None = None, source: Source | None = None,
    ) -> object: ...  # fmt: skip


class Functions(TorchFunctionMode):
    """A context in which calls of torch's functions are watched; a layer with a rule of its own pauses it."""

    def __init__(self, names: Mapping[int, str], count: int, tell: Tell, shared: Container[str] = ()) -> None:
        """`shared` are tables of which an earlier pass has shown that all samples look up the same rows."""
        super().__init__()
        self.paused, self.made = 0, Made(names, count)
        self._names, self._count, self._tell, self._shared = names, count, tell, shared

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention" and not self.paused:
            args, kwargs = self._with_a_mask_for_each(*args, **kwargs)
        output = func(*args, **kwargs)
        if self.paused or not isinstance(output, Tensor) or output.grad_fn is None or output.is_complex():
            return output
        if name in LAYERS:
            self._see_layer(name, args, kwargs, output)
        elif name in SIGNS and not kwargs and len(args) == 2:
            self._see_sum_or_product(name, *args, output)
        elif name in ("expand", "repeat"):
            self._see_spread(args[0], output)
        elif func is torch.where and not kwargs and len(args) == 3:
            self._see_choice(args[0].bool(), args[1], args[2], output)
        elif name == "masked_fill" and not kwargs and len(args) == 3:
            self._see_choice(~args[1].bool(), args[0], args[2], output)
        return output

    def _see_layer(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if not any(self.made.ways(value) for value in (*args, *kwargs.values())):
            return
        try:
            layer = LAYERS[name](*args, **kwargs)
        except TypeError:  # arguments that only another function of that name takes
            return
        if (
            layer is None
            or self.made.is_free_of_samples(layer.inputs)
            or (name in LOOKUPS and self._is_shared(name, layer.weight, layer.inputs))
        ):
            return
        rule, weight = layer.rule, layer.weight
        turned = None if weight is None or rule not in TURNED else self._turned(weight)
        if turned is not None:
            rule, weight = TURNED[rule], turned
        places = {"weight": weight, "bias": layer.bias}
        names = {place: self._names[id(held)] for place, held in places.items() if id(held) in self._names}
        tell = partial(
            self._tell,
            rule=rule,
            module=layer.module,
            inputs=layer.inputs,
            output=output,
            statistics=layer.statistics,
        )
        if names:
            tell(f"{name} {sorted(names.values())}", names=names)
        for place, held in places.items():
            if (
                held is not None
                and place not in names
                and not held._backward_hooks
                and (ways := self.made.ways(held))
            ):
                source = Source(held, ways, place)
                tell(f"{name} of {sorted(ways)}", names={way: way for way in ways}, source=source)

    def _is_shared(self, name: str, table: Tensor | None, index: Tensor) -> bool:
        """Whether all samples have the same rows of a table: an earlier pass has shown it, the places count 0, 1, 2, …, or they stand in
        square brackets and are not as many as there are samples."""
        if self._names.get(id(table), "") in self._shared or counts_positions(index, self._count):
            return True
        return name == "__getitem__" and (index.dim() == 0 or len(index) != self._count)

    def _turned(self, tensor: Tensor) -> Tensor | None:
        """The parameter that `tensor` is the transpose of."""
        whole = tensor._base
        if whole is None or id(whole) not in self._names or tensor.dim() != 2:
            return None
        is_turned = tensor.shape == whole.shape[::-1] and tensor.stride() == whole.stride()[::-1]
        return whole if is_turned and tensor.stride() != whole.stride() else None

    def _see_sum_or_product(self, name: str, one: Any, other: Any, output: Tensor) -> None:
        place = 0 if self.made.ways(one) else 1
        source, partner = (one, other) if place == 0 else (other, one)
        ways = self.made.ways(source)
        if not ways or self.made.ways(partner):  # no parameters, or nothing but parameters
            return
        if not _needs_gradient(partner) and not self._reaches_samples(source, output):
            return  # with numbers, or a table that all samples share: still made of parameters alone
        signs = SIGNS[name]
        in_place = output is one
        if in_place and (source is one or signs is None or output._is_view()):
            return  # what it was before is gone, or what it is a part of has changed too
        if signs is not None:
            factor = torch.full((), signs[place], device=output.device)
        elif name == "mul":
            factor = partner
        else:  # by which the source is divided, or which is divided by it
            factor = 1 / partner.to(output.dtype) if place == 0 else -output.detach() / source.detach()
        self._tell_use(name, Source(source, ways), factor, output)

    def _see_spread(self, source: Any, output: Tensor) -> None:
        """A parameter repeated for each sample, as the token that stands for the class is."""
        ways = self.made.ways(source)
        if ways and self._reaches_samples(source, output) and _is_whole(source, output):
            self._tell_use("expand", Source(source, ways), torch.ones((), device=output.device), output)

    def _see_choice(self, condition: Tensor, one: Any, other: Any, output: Tensor) -> None:
        """A table that all samples share, of which each leaves out what it has no use for."""
        place = 0 if self.made.ways(one) else 1
        source, partner = (one, other) if place == 0 else (other, one)
        ways = self.made.ways(source)
        if ways and not _needs_gradient(partner) and self._reaches_samples(source, output):
            self._tell_use("where", Source(source, ways), condition if place == 0 else ~condition, output)

    def _with_a_mask_for_each(self, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Attention with its mask repeated for each sample, where that is made of parameters, as a table of distances is."""
        mask: Any = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        query: Any = args[0] if args else kwargs.get("query")
        if not self.made.ways(mask) or mask.dim() != 4 or len(mask) != 1 or len(query) != self._count:
            return args, kwargs
        repeated = mask.expand(self._count, -1, -1, -1)
        self._see_spread(mask, repeated)
        if len(args) > 3:
            return (*args[:3], repeated, *args[4:]), kwargs
        return args, {**kwargs, "attn_mask": repeated}

    def _tell_use(self, name: str, source: Source, factor: Tensor, output: Tensor) -> None:
        if source.tensor._backward_hooks:
            return  # which want to see the whole gradient
        shape, whole = _own_shape(source.tensor), tuple(source.tensor.shape)
        if self._has_samples_second(source.tensor, output):
            rule = Rule(partial(_rows_by_step, whole), partial(_events, len(whole) - 2))
        else:
            rule = Rule(partial(_spread_rows, whole, shape), partial(_events, len(shape)))
        names = {way: way for way in source.ways}
        self._tell(
            f"{name} {sorted(names)}",
            rule,
            NO_LAYER,
            names,
            factor.detach().expand(output.shape),
            output,
            source=source,
        )

    def _reaches_samples(self, source: Tensor, output: Tensor) -> bool:
        """Whether it is repeated for each sample: there are samples in the output, and none in it."""
        leading = output.shape[: output.dim() - len(_own_shape(source))]
        repeated = self._count > 1 and self._count in leading[:2]
        return repeated or self._has_samples_second(source, output)

    def _has_samples_second(self, source: Tensor, output: Tensor) -> bool:
        """Whether it is repeated in the second dimension alone, as [T, 1, D] is for [T, N, D]; not where the first could be samples too."""
        by_step = self._count > 1 and len(source.shape) == len(output.shape) > 1 and source.shape[1] == 1
        return (
            by_step
            and output.shape[1] == self._count
            and output.shape[0] % self._count != 0
            and (source.shape[0], *source.shape[2:]) == (output.shape[0], *output.shape[2:])
        )


LOOKUPS = ("embedding", "__getitem__")
# functions that add what stands at their first and second place, with these signs; None for those that multiply or divide
SIGNS: dict[str, tuple[float, float] | None] = {
    "add": (1.0, 1.0), "add_": (1.0, 1.0), "sub": (1.0, -1.0), "sub_": (1.0, -1.0),
    "mul": None, "mul_": None, "div": None, "div_": None, "true_divide": None,
}  # fmt: skip


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _own_shape(source: Tensor) -> tuple[int, ...]:
    """Without the leading dimensions of size 1, along which it is repeated."""
    shape = list(source.shape)
    while shape and shape[0] == 1:
        del shape[0]
    return tuple(shape)


def _is_whole(source: Tensor, output: Tensor) -> bool:
    """Whether it was repeated along dimensions of size 1 alone."""
    own = _own_shape(source)
    spread = output.shape[output.dim() - len(own) :]
    return all(size in (1, now) for size, now in zip(own, spread, strict=True))


def _events(dims: int, module: nn.Module, x: Tensor) -> tuple[int, int]:
    return dims, dims


def _spread_rows(shape: tuple[int, ...], own: tuple[int, ...], seen: Seen) -> list[Block]:
    """Σ_t b_nt ∘ a_nt with respect to a tensor of this shape, summed where it was repeated: [N, T, *event] to [N, *shape]."""
    values = _products(seen).sum(1)
    over = [1 + dim for dim, size in enumerate(own) if size == 1]
    values = values.sum(over, keepdim=True) if over else values
    return [Rows(seen.names["weight"], values.reshape(len(values), *shape))]


def _rows_by_step(shape: tuple[int, ...], seen: Seen) -> list[Block]:
    """b_nt ∘ a_nt with respect to a tensor [T, 1, *event]: each position has its own."""
    values = _products(seen)
    return [Rows(seen.names["weight"], values.reshape(len(values), *shape))]


def _products(seen: Seen) -> Tensor:
    """b ∘ a; where a is a choice, without a product, for 0 × inf is NaN."""
    choice = seen.inputs.dtype == torch.bool
    return torch.where(seen.inputs, seen.gradient, 0) if choice else seen.gradient * seen.inputs


def counts_positions(index: Any, count: int) -> bool:
    """Whether an embedding's input is 0, 1, 2, …, as that of positions is: all samples share its rows. As many as there are samples may be
    theirs all the same; and a card is not asked, for that would wait."""
    if not isinstance(index, Tensor) or index.is_cuda or index.is_floating_point() or not index.numel():
        return False
    may_be_samples = count == 1 or index.dim() == 0 or len(index) == count
    return not may_be_samples and torch.equal(index.flatten(), torch.arange(index.numel()).to(index))
