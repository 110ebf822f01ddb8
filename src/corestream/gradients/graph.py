"""What the autograd graph says of a forward pass: which nodes count, and how often each parameter is used."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

AccumulateGrad: Any = torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]

# Nodes that only hand a parameter on: a use is what lies behind them.
HANDED_ON = frozenset(
    f"{name}Backward0"
    for name in (
        "ToCopy", "T", "Transpose", "View", "UnsafeView", "ReshapeAlias", "Permute", "Alias", "Clone", "Split",
        "SplitWithSizes", "Chunk", "Unbind", "Slice", "Narrow", "Unsqueeze", "Squeeze",
    )
)  # fmt: skip


class Graph:
    """The graph behind a tensor, walked once."""

    def __init__(self, root: Tensor) -> None:
        self._consumers: dict[Any, list[Any]] = defaultdict(list)
        self.nodes: set[Any] = set()
        self._leaves: dict[int, Any] = {}
        nodes, consumers = self.nodes, self._consumers
        stack: list[Any] = [root.grad_fn] if root.grad_fn is not None else []
        while stack:
            node = stack.pop()
            if node in nodes:
                continue
            nodes.add(node)
            if isinstance(node, AccumulateGrad):
                self._leaves[id(node.variable)] = node
                continue
            for child, _ in node.next_functions:
                if child is not None:
                    consumers[child].append(node)
                    stack.append(child)

    def uses(self, parameters: Iterable[Tensor]) -> list[int]:
        """How many operations take each parameter in."""
        return [self._uses(self._leaves.get(id(parameter))) for parameter in parameters]

    def hides_parameters(self) -> bool:
        """Whether a reentrant checkpoint is part of it, whose own graph is made only in the backward pass."""
        return any(node.name() == "CheckpointFunctionBackward" for node in self.nodes)

    def _uses(self, node: Any) -> int:
        return sum(self._uses(c) if c.name() in HANDED_ON else 1 for c in self._consumers.get(node, ()))

    def deepest(self, nodes: Iterable[Any]) -> set[Any]:
        """Those of the nodes that no path leads on from to another of them."""
        nodes = set(nodes)
        above: set[Any] = set()
        stack = [consumer for node in nodes for consumer in self._consumers.get(node, ())]
        while stack:
            node = stack.pop()
            if node not in above:
                above.add(node)
                stack.extend(self._consumers.get(node, ()))
        return nodes - above
