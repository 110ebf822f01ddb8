"""What the autograd graph says of a forward pass: which nodes count, and how often each parameter is used."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
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

# Nodes that put values where an index says, or one part after the other.
MOVING = frozenset(
    f"{name}Backward0"
    for name in (
        "Index", "IndexSelect", "Gather", "Sort", "Topk", "IndexPut", "IndexCopy", "IndexAdd", "Scatter", "ScatterAdd",
        "ScatterReduce", "MaskedSelect", "Cat", "Stack", "MaskedScatter", "Take", "UniqueDim", "SegmentReduce", "PackPaddedSequence",
        "IndexReduce", "SelectScatter", "SliceScatter", "EmbeddingBag",
    )
)  # fmt: skip

# Nodes that take a part: what stands beside what then depends on the order of the samples.
TAKING = frozenset(
    f"{name}Backward0"
    for name in ("Slice", "Select", "Split", "SplitWithSizes", "Chunk", "Unbind", "Narrow", "UnsafeSplit")
)

# Nodes that make one value of several, or put them in another order, along dimensions that they name.
ALONG = frozenset(
    f"{name}Backward{number}"
    for number in range(4)
    for name in (
        "Sum", "Mean", "Prod", "Var", "Std", "VarMean", "StdMean", "Max", "Min", "Amax", "Amin", "Median", "Kthvalue", "Logsumexp",
        "Norm", "LinalgVectorNorm", "Cumsum", "Cumprod", "Logcumsumexp", "Softmax", "LogSoftmax", "Roll", "Flip",
    )
)  # fmt: skip

PRODUCTS = frozenset(f"{name}Backward0" for name in ("Mm", "Addmm", "Bmm", "Baddbmm"))  # of matrices
MULTIPLYING = PRODUCTS | {"MvBackward0", "AddmvBackward0"}

# Nodes that hold each row of one table against each of another.
PAIRING = frozenset(f"{name}Backward0" for name in ("Cdist", "EuclideanDist", "PdistForward"))


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

    def uses(self, parameters: Iterable[Tensor], made: Container[Any] = ()) -> list[int]:
        """How many operations take each parameter in: those behind a node that hands it on, or of `made`, where something is made of
        parameters alone. An operation counts once for each way to it."""
        known: dict[Any, int] = {}
        return [self._uses(self._leaves.get(id(parameter)), made, known) for parameter in parameters]

    def kinds(self) -> frozenset[tuple[str, int]]:
        """How many nodes there are of each operation: a model that computes something else has others."""
        return frozenset(Counter(node.name() for node in self.nodes).items())

    def dtypes(self) -> set[torch.dtype]:
        """In which the gradients are that it hands on."""
        return {
            one.dtype
            for node in self.nodes
            if not isinstance(node, AccumulateGrad)
            for one in node._input_metadata
            if one.dtype.is_floating_point
        }

    def hides_parameters(self) -> bool:
        """Whether a reentrant checkpoint is part of it, whose own graph is made only in the backward pass."""
        return any(node.name() == "CheckpointFunctionBackward" for node in self.nodes)

    def has_own_functions(self) -> bool:
        """Whether a torch.autograd.Function is part of it, whose backward pass may do anything."""
        return any(map(_is_of_its_own, self.nodes))

    def moves_samples(self, count: int) -> bool:
        """Whether an operation in it may put samples in another order, or mix them. What is seen of this batch is then no rule for the
        next: its index may be another one, and a gate that is closed now may be open."""
        return count > 1 and any(_may_move(node, count) for node in self.nodes)

    def _uses(self, leaf: Any, made: Container[Any], known: dict[Any, int]) -> int:
        stack = [leaf]
        while stack:
            node = stack[-1]
            consumers = self._consumers.get(node, ())
            passing = [one for one in consumers if one in made or one.name() in HANDED_ON]
            if missing := [one for one in passing if one not in known]:
                stack += missing
            else:
                known[node] = len(consumers) - len(passing) + sum(known[one] for one in passing)
                stack.pop()
        return known[leaf]

    def deepest(self, nodes: Iterable[Any]) -> set[Any]:
        """Those of the nodes from which a backward pass reaches no other of them."""
        nodes = set(nodes)
        above: set[Any] = set()
        stack = [consumer for node in nodes for consumer in self._consumers.get(node, ())]
        while stack:
            node = stack.pop()
            if node not in above:
                above.add(node)
                stack.extend(self._consumers.get(node, ()))
        return nodes - above


def _may_move(node: Any, count: int) -> bool:
    name = node.name()
    check = CHECKS.get(name)
    return (
        (check is not None and check(node, count))
        or name.endswith("CopySlices")  # an assignment in place, out[i] = …
        or _is_of_its_own(node)
        or (name.startswith("ScaledDotProduct") and not _has_a_table_for_each(node, count))
        or _pairs_samples(node, count)
    )


def _is_of_its_own(node: Any) -> bool:
    """Whether it is somebody's torch.autograd.Function, which may do anything; torch's own for module hooks changes nothing."""
    own = isinstance(node, torch.autograd.function.BackwardCFunction)
    return own and node.name() != "BackwardHookFunctionBackward"


def _moves(node: Any, count: int) -> bool:
    """Whether the node's index may move samples: not where it is of a dimension without them, or leaves each in its place."""
    if node.name() == "IndexBackward0":
        sizes = node._saved_self_sym_sizes
        indices = [(dim, index) for dim, index in enumerate(node._saved_indices) if index is not None]
        masks = [index for _, index in indices if index.dtype in (torch.bool, torch.uint8)]
        if masks:  # of any number of dimensions
            return not all(bool(mask.all()) for mask in masks)
    elif node.name() == "IndexSelectBackward0":
        sizes, indices = node._saved_self_sym_sizes, [(_dim(node), node._saved_index)]
    elif node.name() == "GatherBackward0":
        sizes, indices = node._saved_self.shape, [(_dim(node), node._saved_index)]
    elif node.name() in ("CatBackward0", "StackBackward0"):  # of parts that may have any length
        return _dim(node) == 0 and node._input_metadata[0].shape[0] % count == 0
    else:
        return True
    return any(
        _holds_samples(sizes, dim, count) and not _is_in_order(index, sizes[dim]) for dim, index in indices
    )


def _takes_some(node: Any, count: int) -> bool:
    """Whether it takes a part of the samples: they may be compared with the rest, as the first with all others."""
    edge = node.next_functions[0]
    if edge[0] is None or _is_parameter(edge[0]):
        return False
    shape, dim = shape_of(edge), _dim(node)
    if (
        not shape
        or tuple(node._input_metadata[0].shape) == tuple(shape)
        or not _holds_samples(shape, dim, count)
    ):
        return False
    batch_first = shape[0] % count == 0  # then as many columns as samples are no samples
    return dim in (0, -len(shape)) or not batch_first


def _looks_up_samples(node: Any, count: int) -> bool:
    """Whether the table that an embedding reads is made of samples."""
    return not _is_parameter(node.next_functions[0][0])


def _goes_along_samples(node: Any, count: int) -> bool:
    shape = shape_of(node.next_functions[0])
    if not shape:
        return False
    dims = getattr(node, "_saved_dims", getattr(node, "_saved_dim", None))
    named = (dims,) if isinstance(dims, int) else dims or range(len(shape))
    places = {_signed(dim) % len(shape) for dim in named}
    batch_first = shape[0] % count == 0  # then as many classes as samples are no samples
    return 0 in places if batch_first else any(shape[place] == count for place in places)


def _multiplies_samples(node: Any, count: int) -> bool:
    """Where what is multiplied from the right is no weight, rows of it are mixed: h @ h.T, or a table of samples @ h."""
    left, right = node.next_functions[-2:]
    if right[0] is None or _is_parameter(right[0]) or (left[0] is not None and _is_parameter(left[0])):
        return False
    return not _has_a_table_for_each(node, count)


def _compares_samples(node: Any, count: int) -> bool:
    """Whether rows of samples are held against each other: not where one side is a weight, as prototypes are, or a constant."""
    sides = [side for side, _ in node.next_functions[:2]]
    weighed = len(sides) > 1 and any(side is None or _is_parameter(side) for side in sides)
    return not weighed and not _has_a_table_for_each(node, count)


def _has_a_table_for_each(node: Any, count: int) -> bool:
    """Whether the first of three dimensions is the samples', so that each has a table of its own, as in attention."""
    shape = node._input_metadata[0].shape
    return len(shape) > 2 and shape[0] % count == 0


def _pairs_samples(node: Any, count: int) -> bool:
    """Whether samples lie along two dimensions, since [N, 1] was broadcast against [1, N], or repeated for that. A mask that hides all
    pairs of one batch may show some of the next."""
    if isinstance(node, AccumulateGrad):
        return False
    shape = node._input_metadata[0].shape
    if shape.count(count) < 2:
        return False
    repeated = [
        _repeated(shape_of(edge), shape, count)
        for edge in node.next_functions
        if edge[0] is not None and not _is_parameter(edge[0])
    ]
    if node.name() in ("ExpandBackward0", "RepeatBackward0"):
        return any(repeated)
    return any(one and other and one != other for one in repeated for other in repeated)


def _repeated(given: Sequence[int], shape: Sequence[int], count: int) -> set[int]:
    """The dimensions along which what is given was repeated for each sample."""
    aligned = [1] * (len(shape) - len(given)) + list(given)
    return {dim for dim, size in enumerate(shape) if size == count and aligned[dim] == 1}


def _is_parameter(node: Any) -> bool:
    while node is not None and node.name() in HANDED_ON:
        node = node.next_functions[0][0]
    return isinstance(node, AccumulateGrad)


def shape_of(edge: tuple[Any, int]) -> Sequence[int]:
    """Of what goes along an edge; saved tensors may be a checkpoint's, which would be computed again."""
    node, place = edge
    if node is None:
        return ()
    shape: Sequence[int] = (
        node.variable.shape if isinstance(node, AccumulateGrad) else node._input_metadata[place].shape
    )
    return shape


def _holds_samples(sizes: Sequence[int], dim: int, count: int) -> bool:
    return sizes[dim] == count or (dim in (0, -len(sizes)) and sizes[dim] % count == 0)


def _dim(node: Any) -> int:
    return _signed(node._saved_dim)


def _signed(dim: int) -> int:
    """A node has a negative dimension as a number without a sign."""
    return dim if dim < 2**63 else dim - 2**64


def _is_in_order(index: Tensor, size: int) -> bool:
    return torch.equal(index.flatten().long(), torch.arange(size, device=index.device))


CHECKS: dict[str, Callable[[Any, int], bool]] = {
    name: check
    for names, check in (
        (MOVING, _moves),
        (TAKING, _takes_some),
        (ALONG, _goes_along_samples),
        (MULTIPLYING, _multiplies_samples),
        (PAIRING, _compares_samples),
        (("EmbeddingBackward0",), _looks_up_samples),
        (("DotBackward0", "SparseAddmmBackward0"), lambda node, count: True),  # sums over rows of any kind
    )
    for name in names
}
