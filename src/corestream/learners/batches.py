"""What a learner asks of a batch before it learns from it, and of the model that it is given to."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ..gradients.calling import Inputs, check_batch, leaves

# of a batch: for each of its tensors its name, and a sample's shape and type
Kind = list[tuple[str, list[int], torch.dtype]]


def checked_inputs(device: torch.device, x: Any, y: Any, task: Tensor | None, ids: Any) -> Inputs:
    """The model's inputs, of a batch whose parts fit together."""
    inputs = x if task is None else (x, task)
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor, one target a sample, got {type(y).__name__}")
    count = check_batch(device, (inputs, y))[2]
    if ids is None:
        return inputs
    if not isinstance(ids, Tensor):
        raise TypeError(f"ids must be a tensor, one number a sample, got {type(ids).__name__}")
    if ids.shape != (count,):
        raise ValueError(f"ids must have shape [{count}], one a sample, got {list(ids.shape)}")
    if ids.is_floating_point() or ids.is_complex():
        raise ValueError(f"ids must be whole numbers, got {ids.dtype}")
    return inputs


def kind_of(inputs: Inputs, targets: Tensor) -> Kind:
    if isinstance(inputs, Tensor):
        named = {"x": inputs}
    elif isinstance(inputs, Mapping):
        named = dict(inputs)
    else:
        named = {f"x[{place}]": x for place, x in enumerate(inputs)}
    return [(name, list(x.shape[1:]), x.dtype) for name, x in (*named.items(), ("y", targets))]


def in_order(inputs: Inputs, before: Kind) -> Inputs:
    """A dict with its tensors in the order of those before: the first of them has a meaning (`embed`, raw inputs)."""
    if not isinstance(inputs, Mapping):
        return inputs
    return {name: inputs[name] for name, *_ in before if name in inputs} | dict(inputs)


def require_same(kind: Kind, before: Kind) -> None:
    if kind == before:
        return
    (names, shapes, _), (old_names, old_shapes, _) = zip(*kind, strict=True), zip(*before, strict=True)
    if names != old_names:
        raise ValueError(
            f"samples are kept side by side and must have the same inputs: {', '.join(old_names[:-1])} before, "
            f"{', '.join(names[:-1])} now"
        )
    cure = "convert them to one type, x.to(dtype)" if shapes == old_shapes else "pad sequences to one length"
    raise ValueError(
        "samples are kept side by side and must have one shape and type: "
        f"{_words(before)} before, {_words(kind)} now; {cure}"
    )


def _words(kind: Kind) -> str:
    return ", ".join(f"{dtype} {shape}" for _, shape, dtype in kind)


def versions_of(inputs: Inputs) -> list[int]:
    """How often each tensor has been changed in place."""
    return [x._version for x in leaves(inputs)]


def plain(x: Tensor) -> Tensor:
    """Without a graph, and not bound to inference_mode."""
    if x.is_inference():
        with torch.inference_mode(False):
            return x.clone()
    return x.detach() if x.requires_grad else x


def explain_task(model: nn.Module, inputs: Inputs, error: TypeError) -> None:
    """A clearer error where the model does not take the task; what else may have gone wrong in it is left alone."""
    taken = signature(model.forward)
    try:
        taken.bind(*inputs)
    except TypeError:
        raise TypeError(
            f"task goes to the model as its second argument, and {type(model).__name__}.forward takes {taken}: leave task out, or let "
            "the model take it"
        ) from error
