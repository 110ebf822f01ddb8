"""What a model makes of its parameters alone, before samples come in: 1 + gain, rows of a table of positions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .graph import HANDED_ON, AccumulateGrad, shape_of

MISSING = "missing"


@dataclass(frozen=True)
class Source:
    """What stands in a parameter's place, and on how many ways it comes from each parameter."""

    tensor: Tensor
    ways: Mapping[str, int]
    place: str = "weight"
    node: Any = field(init=False)
    version: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "node", self.tensor.grad_fn)
        object.__setattr__(self, "version", self.tensor._version)

    @property
    def is_changed(self) -> bool:
        """Whether something was done to it in place since it was used."""
        return self.tensor.grad_fn is not self.node or self.tensor._version != self.version


class Made:
    """Which tensors of a forward pass are made of parameters alone, by the autograd graph behind them."""

    def __init__(self, names: Mapping[int, str], count: int) -> None:
        self._names, self._count = names, count  # of the wanted parameters, by id; of the samples
        # of nodes seen: on how many ways each comes from parameters; None where it is not made of parameters alone
        self._ways: dict[Any, Counter[str] | None] = {}

    @property
    def nodes(self) -> set[Any]:
        return {node for node, ways in self._ways.items() if ways}

    def has_samples(self, output: Tensor) -> None:
        """From here on samples have a part in it, whatever the graph says: it knows nothing of what needs no gradient."""
        self._ways[output.grad_fn] = None

    def ways(self, value: Any) -> Counter[str] | None:
        """On how many ways a tensor comes from each wanted parameter; None where it is not made of parameters alone."""
        if not isinstance(value, Tensor) or not value.requires_grad:
            return None
        if value.grad_fn is None:
            return Counter({self._names[id(value)]: 1}) if id(value) in self._names else None
        return self._made_at(value.grad_fn)

    def is_free_of_samples(self, value: Tensor) -> bool:
        """Whether it is made of parameters alone by its shape too, as learned queries and what layers make of them. Autograd alone does not
        tell: the output of a recurrent layer whose input needs no gradient leads to nothing but parameters, too."""
        if not self.ways(value):
            return False
        stack: list[Any] = [] if value.grad_fn is None else [value.grad_fn]
        walked: set[Any] = set()
        while stack:
            node = stack.pop()
            if isinstance(node, AccumulateGrad) or node in walked:
                continue
            walked.add(node)
            children = [edge for edge in node.next_functions if edge[0] is not None]
            stack += [child for child, _ in children]
            shape = node._input_metadata[0].shape
            if node.name() in HANDED_ON or not self._may_hold_samples(shape):
                continue
            if not any(shape_of(edge)[:1] == shape[:1] for edge in children):
                return False
        return True

    def _may_hold_samples(self, shape: Sequence[int]) -> bool:
        return len(shape) > 0 and (shape[0] % self._count == 0 or self._count in shape[1:2])

    def _made_at(self, root: Any) -> Counter[str] | None:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self._ways:
                stack.pop()
                continue
            if isinstance(node, AccumulateGrad):
                name = self._names.get(id(node.variable))
                self._ways[node] = None if name is None else Counter({name: 1})
                continue
            children = [child for child, _ in node.next_functions if child is not None]
            known = [self._ways.get(child, MISSING) for child in children]
            if None in known:  # one is enough
                self._ways[node] = None
            elif MISSING in known:
                stack.append(children[known.index(MISSING)])
            else:
                self._ways[node] = sum((one for one in known if isinstance(one, Counter)), Counter[str]())
        return self._ways[root]
