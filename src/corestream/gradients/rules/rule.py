"""What a layer rule is: how a layer's input and output gradient become blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from ..blocks import Block


@dataclass(frozen=True)
class Seen:
    """One call of a layer, sample first: what a rule gets to work with."""

    module: nn.Module
    names: Mapping[str, str]  # of each wanted parameter: its name in the layer ("weight") -> in the model
    inputs: Tensor  # [N, T, *event]
    gradient: Tensor  # [N, T, *event]: of each sample's loss with respect to the layer's output
    max_bytes: int
    statistics: tuple[Tensor, Tensor] | None = None  # of the batch, where the layer normalised by them


MakeBlocks = Callable[[Seen], list[Block]]
Events = Callable[[nn.Module, Tensor], tuple[int, int]]


@dataclass(frozen=True)
class Rule:
    """`events` tells how many trailing dimensions of the input and of the output belong to one position."""

    blocks: MakeBlocks
    events: Events


RULES: dict[type[nn.Module], Rule] = {}

# what a class may have of its own and still compute as the one it is made from
HARMLESS = frozenset(
    [
        "__init__",
        "__repr__",
        "extra_repr",
        "reset_parameters",
        "_check_input_dim",
        "__constants__",
        "__doc__",
        "__module__",
        "__qualname__",
        "__annotations__",
        "__dict__",
        "__weakref__",
        "__orig_bases__",
        "__parameters__",
        "__firstlineno__",
        "__static_attributes__",
    ]
)


def rule_of(kind: type[nn.Module]) -> Rule | None:
    """That of a layer's type, or of the type it is made from where it computes what that does."""
    if kind in RULES:
        return RULES[kind]
    base = next((one for one in kind.__mro__ if one in RULES), None)
    if base is None:
        return None
    own = {name for one in kind.__mro__ if one not in base.__mro__ for name in vars(one)} - HARMLESS
    changes = any(hasattr(base, name) or name in ("weight", "bias") for name in own)
    return None if changes else RULES[base]


def register(*types: type[nn.Module], events: Events) -> Callable[[MakeBlocks], MakeBlocks]:
    """Register the decorated function as the rule for these layer types, and for those made from them that compute the same."""

    def add(blocks: MakeBlocks) -> MakeBlocks:
        RULES.update(dict.fromkeys(types, Rule(blocks, events)))
        return blocks

    return add
