"""What a model makes of its parameters alone, before samples come in: 1 + gain, rows of a table of positions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .graph import HANDED_ON, PRODUCTS, AccumulateGrad, shape_of

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

    def has_samples(self, output: Tensor, node: Any) -> None:
        """From here on samples have a part in it, and in what this node behind it gives, whatever the graph says: it knows nothing of what
        needs no gradient."""
        self._ways[output.grad_fn] = self._ways[node] = None

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
            stack += [child for child, _ in node.next_functions if child is not None]
            if node.name() not in HANDED_ON and self._takes_samples_in(node):
                return False
        return True

    def _takes_samples_in(self, node: Any) -> bool:
        """Whether as many rows as there are samples, or as many columns, come in with what autograd knows nothing of."""
        shape, operands = node._input_metadata[0].shape, node.next_functions
        known = [operand for operand in operands if operand[0] is not None]

        def come_with(dim: int, given: Sequence[tuple[Any, int]]) -> bool:
            return any(shape_of(operand)[dim : dim + 1] == shape[dim : dim + 1] for operand in given)

        for dim in self._sample_dims(shape):
            if (
                node.name() in PRODUCTS and dim >= len(shape) - 2
            ):  # rows are the left one's, columns the right one's
                found = come_with(dim, [operands[dim - len(shape)]])
            else:
                found = come_with(0, known) and (
                    dim == 0 or len(known) == len(operands) or come_with(1, known)
                )
            if not found:
                return True
        return False

    def _sample_dims(self, shape: Sequence[int]) -> list[int]:
        """Those that the samples may lie along."""
        return [
            dim
            for dim in range(min(2, len(shape)))
            if shape[dim] == self._count or (dim == 0 and shape[0] % self._count == 0)
        ]

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
