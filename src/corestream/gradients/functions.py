"""Parameters that a model uses by itself, outside of a layer that has a rule: x * self.gain, x + self.positions, x @ self.weight.

While the model runs, a call of one of torch's functions that takes such a parameter is recorded as a call of the layer that does the same.
In a sum or a product something made of parameters alone may take their place (1 + gain, rows of a table of positions): the gradient
with respect to that is carried back to the parameters, sample by sample, through the few operations that made it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .blocks import Block, Outer, Rows
from .blocks.factor import Factor
from .graph import HANDED_ON, AccumulateGrad, shape_of
from .rules import RULES, Rule, Seen


class Tell(Protocol):
    """Where a call is recorded: its label and rule, the layer, the parameters' names, input and output."""

    def __call__(
        self, label: str, rule: Rule, module: nn.Module, names: dict[str, str], inputs: Tensor, output: Tensor,
        *, statistics: tuple[Tensor, Tensor] | None = None, source: "Source | None" = None,
    ) -> None: ...  # fmt: skip


class Source(NamedTuple):
    """What stands in a parameter's place, and on how many ways it comes from each parameter."""

    tensor: Tensor
    ways: Mapping[str, int]
    place: str = "weight"


@dataclass(frozen=True)
class Layer:
    """The layer that does what a function does."""

    rule: Rule
    module: nn.Module
    inputs: Tensor
    weight: Tensor | None
    bias: Tensor | None = None
    statistics: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, module: nn.Module, inputs: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> Self:
        return cls(RULES[type(module)], module, inputs, weight, bias)


def _transposed(seen: Seen) -> list[Block]:
    """y = x @ weight + bias."""
    weight, bias = seen.names.get("weight"), seen.names.get("bias")
    blocks: list[Block] = []
    if weight is not None:
        left, right = Factor(seen.inputs.unsqueeze(1)), Factor(seen.gradient.unsqueeze(1))
        shape = (seen.inputs.shape[-1], seen.gradient.shape[-1])
        blocks.append(Outer(weight, shape, left, right, None, seen.max_bytes))
    if bias is not None:
        blocks.append(Rows(bias, seen.gradient.sum(1)))
    return blocks


def _from_the_left(seen: Seen) -> list[Block]:
    """y = weight @ x, for columns of x."""
    return LINEAR.blocks(replace(seen, inputs=_as_rows(seen.inputs), gradient=_as_rows(seen.gradient)))


def _as_rows(columns: Tensor) -> Tensor:
    return columns.mT.flatten(1, 2)


NO_LAYER = nn.Identity()  # for rules that do not look at it
LINEAR, TRANSPOSED = RULES[nn.Linear], Rule(_transposed, RULES[nn.Linear].events)
FROM_THE_LEFT = Rule(_from_the_left, events=lambda module, x: (2, 2))
TURNED = {id(LINEAR): TRANSPOSED, id(TRANSPOSED): LINEAR}  # what a rule becomes with a transposed weight


class Functions(TorchFunctionMode):
    """A context in which calls of torch's functions are watched; a layer with a rule of its own pauses it."""

    def __init__(self, names: Mapping[int, str], count: int, tell: Tell) -> None:
        super().__init__()
        self.paused = 0
        self._names, self._count, self._tell = names, count, tell
        # of nodes seen: on how many ways each comes from parameters; None where it is not made of parameters alone
        self.made: dict[Any, Counter[str] | None] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention" and not self.paused:
            args, kwargs = self._with_a_mask_for_each(*args, **kwargs)
        output = func(*args, **kwargs)
        if self.paused or not isinstance(output, Tensor) or output.grad_fn is None:
            return output
        if name in LAYERS:
            self._see_layer(name, args, kwargs, output)
        elif name in SIGNS and not kwargs and len(args) == 2:
            self._see_sum_or_product(name, *args, output)
        elif name in ("expand", "repeat"):
            self._see_spread(args[0], output)
        return output

    def _see_layer(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if not any(self.made_of(value) for value in (*args, *kwargs.values())):
            return
        try:
            layer = LAYERS[name](*args, **kwargs)
        except TypeError:  # arguments that only another function of that name takes
            return
        if (
            layer is None
            or self.is_free_of_samples(layer.inputs)
            or (name in LOOKUPS and self._looks_up_for_all(name, layer.inputs))
        ):
            return
        rule, weight = layer.rule, layer.weight
        if weight is not None and (turned := self._turned(weight)) is not None:
            if id(rule) not in TURNED:
                return
            rule, weight = TURNED[id(rule)], turned
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
            if held is not None and place not in names and (ways := self.made_of(held)):
                source = Source(held, ways, place)
                tell(f"{name} of {sorted(ways)}", names={way: way for way in ways}, source=source)

    def _looks_up_for_all(self, name: str, index: Tensor) -> bool:
        """Whether all samples have the same rows of a table; places in square brackets are rarely those of samples."""
        return looks_up_positions(index) or (
            name == "__getitem__" and (index.dim() < 2 or len(index) != self._count)
        )

    def _turned(self, tensor: Tensor) -> Tensor | None:
        """The parameter that `tensor` is the transpose of."""
        whole = tensor._base
        if whole is None or id(whole) not in self._names or tensor.dim() != 2:
            return None
        is_turned = tensor.shape == whole.shape[::-1] and tensor.stride() == whole.stride()[::-1]
        return whole if is_turned and tensor.stride() != whole.stride() else None

    def _see_sum_or_product(self, name: str, one: Any, other: Any, output: Tensor) -> None:
        place = 0 if self.made_of(one) else 1
        source, partner = (one, other) if place == 0 else (other, one)
        ways = self.made_of(source)
        if not ways or self.made_of(partner):  # no parameters, or nothing but parameters
            return
        if not _needs_gradient(partner) and not self._reaches_samples(source, output):
            return  # with numbers, or a table that all samples share: still made of parameters alone
        signs = SIGNS[name]
        if name == "mul_" and partner is one:
            return  # what was multiplied in place is gone
        factor = partner if signs is None else torch.full((), signs[place], device=output.device)
        self._tell_use(name, Source(source, ways), factor, output)

    def _see_spread(self, source: Any, output: Tensor) -> None:
        """A parameter repeated for each sample, as the token that stands for the class is."""
        ways = self.made_of(source)
        if ways and self._reaches_samples(source, output):
            self._tell_use("expand", Source(source, ways), torch.ones((), device=output.device), output)

    def _with_a_mask_for_each(self, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Attention with its mask repeated for each sample, where that is made of parameters, as a table of distances is."""
        mask: Any = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        if not self.made_of(mask) or mask.dim() != 4 or len(mask) != 1 or len(args[0]) != self._count:
            return args, kwargs
        repeated = mask.expand(self._count, -1, -1, -1)
        self._see_spread(mask, repeated)
        if len(args) > 3:
            return (*args[:3], repeated, *args[4:]), kwargs
        return args, {**kwargs, "attn_mask": repeated}

    def _tell_use(self, name: str, source: Source, factor: Tensor, output: Tensor) -> None:
        shape = _own_shape(source.tensor)
        rule = Rule(partial(_spread_rows, tuple(source.tensor.shape), shape), partial(_events, len(shape)))
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
        return self._count > 1 and self._count in leading[:2]

    def made_of(self, value: Any) -> Counter[str] | None:
        """On how many ways a tensor comes from each wanted parameter; None where it is not made of parameters alone."""
        if not _needs_gradient(value):
            return None
        if value.grad_fn is None:
            return Counter({self._names[id(value)]: 1}) if id(value) in self._names else None
        return self._made_at(value.grad_fn)

    def is_free_of_samples(self, value: Tensor) -> bool:
        """Whether it is made of parameters alone for sure, as learned queries and what layers make of them. Of a recurrent layer's output,
        say, autograd knows nothing but parameters either where its input needs no gradient."""
        if not self.made_of(value):
            return False
        stack: list[Any] = [] if value.grad_fn is None else [value.grad_fn]
        while stack:
            node = stack.pop()
            if isinstance(node, AccumulateGrad):
                continue
            children = [edge for edge in node.next_functions if edge[0] is not None]
            stack += [child for child, _ in children]
            if node.name() in HANDED_ON or node.name() in LOOKING_UP:
                continue
            length = node._input_metadata[0].shape[:1]
            if not any(shape_of(edge)[:1] == length for edge in children):
                return False
        return True

    def _made_at(self, root: Any) -> Counter[str] | None:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.made:
                stack.pop()
                continue
            if isinstance(node, AccumulateGrad):
                name = self._names.get(id(node.variable))
                self.made[node] = None if name is None else Counter({name: 1})
                continue
            children = [child for child, _ in node.next_functions if child is not None]
            known = [self.made.get(child, MISSING) for child in children]
            if None in known:  # one is enough
                self.made[node] = None
            elif MISSING in known:
                stack.append(children[known.index(MISSING)])
            else:
                self.made[node] = sum((one for one in known if isinstance(one, Counter)), Counter[str]())
        return self.made[root]


MISSING = "missing"
LOOKUPS = ("embedding", "__getitem__")
LOOKING_UP = ("EmbeddingBackward0", "IndexBackward0")
# functions that add what stands at their first and second place, with these signs; None for those that multiply
SIGNS: dict[str, tuple[float, float] | None] = {
    "add": (1.0, 1.0), "add_": (1.0, 1.0), "sub": (1.0, -1.0), "sub_": (1.0, -1.0), "mul": None, "mul_": None,
}  # fmt: skip


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _own_shape(source: Tensor) -> tuple[int, ...]:
    """Without the leading dimensions of size 1, along which it is repeated."""
    shape = list(source.shape)
    while shape and shape[0] == 1:
        del shape[0]
    return tuple(shape)


def _events(dims: int, module: nn.Module, x: Tensor) -> tuple[int, int]:
    return dims, dims


def _spread_rows(shape: tuple[int, ...], own: tuple[int, ...], seen: Seen) -> list[Block]:
    """Σ_t b_nt ∘ a_nt with respect to a tensor of this shape, summed where it was repeated: [N, T, *event] to [N, *shape]."""
    values = (seen.gradient * seen.inputs).sum(1)
    over = [1 + dim for dim, size in enumerate(own) if size == 1]
    values = values.sum(over, keepdim=True) if over else values
    return [Rows(seen.names["weight"], values.reshape(len(values), *shape))]


def looks_up_positions(index: Any) -> bool:
    """Whether an embedding is seen to look up the same rows for all samples; a card is not asked, for that would wait."""
    return isinstance(index, Tensor) and not index.is_cuda and counts_positions(index)


def counts_positions(index: Tensor) -> bool:
    """Whether an embedding's input is 0, 1, 2, …, as that of positions is: all samples share its rows, and none is one's own."""
    whole = not index.is_floating_point() and index.numel() > 0
    return whole and torch.equal(index.flatten(), torch.arange(index.numel()).to(index))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Layer:
    return Layer(LINEAR, NO_LAYER, input, weight, bias)


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor) -> Layer:
    return Layer(TRANSPOSED, NO_LAYER, mat1, mat2, input)


def _matmul(input: Tensor, other: Tensor) -> Layer | None:
    if input.dim() >= 2 and other.dim() == 2:
        return Layer(TRANSPOSED, NO_LAYER, input, other)
    return Layer(FROM_THE_LEFT, NO_LAYER, other, input) if input.dim() == 2 and other.dim() >= 3 else None


def _layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Layer:
    return Layer.of(nn.LayerNorm(normalized_shape, eps, elementwise_affine=False), input, weight, bias)


def _rms_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Layer:
    return Layer.of(nn.RMSNorm(normalized_shape, eps, elementwise_affine=False), input, weight)


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Layer:
    return Layer.of(nn.GroupNorm(num_groups, input.shape[1], eps, affine=False), input, weight, bias)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Layer | None:
    """By given statistics: a layer's own forward pass has been given those of its batch as constants."""
    if training or running_mean is None or running_var is None:
        return None
    module = nn.BatchNorm1d(input.shape[1], eps, affine=False, track_running_stats=False)
    constants = running_mean.detach(), running_var.detach()
    return Layer(RULES[nn.BatchNorm1d], module, input, weight, bias, constants)


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Layer | None:
    if max_norm is not None:
        return None  # which changes the weight
    rows, width = weight.shape
    module = nn.Embedding(rows, width, padding_idx, scale_grad_by_freq=scale_grad_by_freq, device="meta")
    return Layer.of(module, input, weight)


def _getitem(input: Tensor, index: Any) -> Layer | None:
    is_index = isinstance(index, Tensor) and index.dtype in (torch.int32, torch.int64)
    return _embedding(index, input) if is_index and input.dim() == 2 else None


def _convolution(kind: Any) -> "Seeing":
    def see(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Layer:
        out, width, *kernel = weight.shape
        module = kind(
            width * groups, out, tuple(kernel), _plain(stride), _plain(padding), _plain(dilation), groups,
            bias=False, device="meta",
        )  # fmt: skip
        return Layer.of(module, input, weight, bias)

    return see


def _plain(size: Any) -> Any:
    """Torch takes [2] for 2."""
    return size if isinstance(size, int | str) else tuple(size) if len(size) > 1 else size[0]


Seeing = Callable[..., Layer | None]

# by their names: functions, methods and operators that do the same share one
LAYERS: dict[str, Seeing] = {
    "linear": _linear,
    "addmm": _addmm,
    "matmul": _matmul,
    "mm": _matmul,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    "__getitem__": _getitem,
    "conv1d": _convolution(nn.Conv1d),
    "conv2d": _convolution(nn.Conv2d),
    "conv3d": _convolution(nn.Conv3d),
}
