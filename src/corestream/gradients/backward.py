"""The backward pass over the layers' outputs, each gradient handed over as soon as it is there."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from .graph import Graph

Take = Callable[[int, Tensor], None]  # the edge's place, and the gradient there


class Backward:
    """Gradients at some edges of a graph. No weight's gradient is computed on the way, and none of theirs is kept here.

    The pass runs down to the deepest edges, whose gradients it returns; those above are met by hooks on their nodes.
    """

    def __init__(self, graph: Graph, losses: Tensor, edges: Sequence[GradientEdge]) -> None:
        self.graph, self.losses = graph, losses
        deepest = graph.deepest(edge.node for edge in edges)
        self._ends: dict[tuple[int, int], tuple[GradientEdge, list[int]]] = {}
        self._above: dict[object, list[tuple[int, int]]] = defaultdict(list)
        for place, edge in enumerate(edges):
            if edge.node in deepest:
                self._ends.setdefault((id(edge.node), edge.output_nr), (edge, []))[1].append(place)
            else:
                self._above[edge.node].append((place, edge.output_nr))

    def run(self, weights: Tensor, take: Take, *, keep_graph: bool) -> None:
        """The gradients of Σ w_n loss_n."""
        if not self._ends:
            return
        hooks = [node.register_prehook(_hook(places, take)) for node, places in self._above.items()]  # type: ignore[attr-defined]
        try:
            ends = list(self._ends.values())
            gradients = torch.autograd.grad(
                self.losses, [edge for edge, _ in ends], weights, retain_graph=keep_graph, allow_unused=True
            )
        finally:
            for hook in hooks:
                hook.remove()
        for (_, places), gradient in zip(ends, gradients, strict=True):
            for place in places:
                if gradient is not None:
                    take(place, gradient)


def _hook(places: list[tuple[int, int]], take: Take) -> Callable[[tuple[Tensor | None, ...]], None]:
    def hook(gradients: tuple[Tensor | None, ...]) -> None:
        for place, output in places:
            gradient = gradients[output]
            if gradient is not None:
                take(place, gradient)

    return hook
