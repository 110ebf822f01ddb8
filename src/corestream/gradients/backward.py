"""The backward pass over the layers' outputs, each gradient handed over as soon as it is there."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .graph import Graph

Take = Callable[[int, Tensor], None]  # which of the places, and the gradient there


@dataclass(frozen=True)
class Place:
    """Where a backward pass meets the gradient of a layer's output.

    An edge and not the output itself, whose gradient is another one after an in-place activation. Where the output is a view, as a Linear's
    with a bias is of more than two dimensions, the edge is its base's: what is done in place goes past the view's.
    """

    edge: GradientEdge
    view: tuple[torch.Size, tuple[int, ...], int] | None = None  # of the base: size, stride and offset

    @staticmethod
    def of(output: Tensor) -> "Place":
        base = output._base
        if base is None or base.grad_fn is None or not base.is_contiguous() or base.numel() != output.numel():
            return Place(get_gradient_edge(output))
        offset = int(output.storage_offset() - base.storage_offset())
        return Place(get_gradient_edge(base), (output.shape, output.stride(), offset))

    def gradient(self, gradient: Tensor) -> Tensor:
        """The output's, from that at the edge."""
        return gradient if self.view is None else gradient.contiguous().as_strided(*self.view)


class Backward:
    """Gradients at some places of a graph. No weight's gradient is computed on the way, and none of theirs is kept here.

    The pass runs down to the deepest edges, whose gradients it returns; those above are met by hooks on their nodes.
    """

    def __init__(self, graph: Graph, losses: Tensor, places: Sequence[Place]) -> None:
        self.graph, self.losses, self._places = graph, losses, places
        edges = [place.edge for place in places]
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

        def meet(place: int, gradient: Tensor | None) -> None:
            if gradient is not None:
                take(place, self._places[place].gradient(gradient))

        hooks = [node.register_prehook(_hook(places, meet)) for node, places in self._above.items()]  # type: ignore[attr-defined]
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
                meet(place, gradient)


def _hook(
    places: list[tuple[int, int]], meet: Callable[[int, Tensor | None], None]
) -> Callable[[tuple[Tensor | None, ...]], None]:
    def hook(gradients: tuple[Tensor | None, ...]) -> None:
        for place, output in places:
            meet(place, gradients[output])

    return hook
