"""How the model and the loss are called, and what is checked before."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ..fusing import fusible
from ..messages import in_short

Inputs = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
LossFn = Callable[[Any, Any], Tensor]
Parameters = Iterable[str | nn.Module | Tensor]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """One cross-entropy a sample, of the outputs or, as a Hugging Face model has them, of their `logits`. A target out of range is an error
    on CPU; on CUDA, where looking would wait, it becomes NaN."""
    if not isinstance(outputs, Tensor):
        outputs = getattr(outputs, "logits", outputs)
    if not isinstance(outputs, Tensor) or outputs.dim() != 2:
        is_tensor = isinstance(outputs, Tensor)
        got = list(outputs.shape) if is_tensor else f"a {type(outputs).__name__}"
        cure = (
            "let the model flatten its inputs, or give a loss_fn"
            if is_tensor
            else "give a loss_fn that takes it"
        )
        raise ValueError(f"the default loss takes outputs of shape [N, classes], got {got}: {cure}")
    if not isinstance(targets, Tensor):
        raise TypeError(
            f"the default loss takes a tensor of targets, got a {type(targets).__name__}: give a loss_fn"
        )
    if targets.dtype.is_floating_point or targets.dim() != 1:
        raise ValueError(
            f"the default loss takes integer targets of shape [N], got {targets.dtype} of shape {list(targets.shape)}: give a loss_fn"
        )
    classes = outputs.shape[1]
    if not targets.is_cuda:
        try:  # no target is ignored, so that -100 is out of range like any other
            return F.cross_entropy(outputs, targets.long(), reduction="none", ignore_index=-(2**62))
        except IndexError:
            n = int(((targets < 0) | (targets >= classes)).nonzero()[0])
            raise ValueError(
                f"targets[{n}] is {int(targets[n])}, and the model's outputs allow 0 to {classes - 1}"
            ) from None
    inside, marks = _within(targets, classes, outputs.dtype)
    return F.cross_entropy(outputs, inside, reduction="none") + marks


@fusible
def _within(targets: Tensor, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The nearest class there is, and NaN for a target that is none."""
    inside = targets.long().clamp(0, classes - 1)
    return inside, torch.zeros_like(inside, dtype=dtype).masked_fill(inside != targets, torch.nan)


def leaves(inputs: Inputs) -> list[Tensor]:
    """The tensors of an input, whatever holds them; a dict's by name, for its order may differ from batch to batch."""
    if isinstance(inputs, Tensor):
        return [inputs]
    return [inputs[name] for name in sorted(inputs)] if isinstance(inputs, Mapping) else list(inputs)


def finite_samples(inputs: Inputs) -> Tensor:
    """[N] bool: the samples of which every number is finite."""
    every = leaves(inputs)
    finite = torch.ones(len(every[0]), dtype=torch.bool, device=every[0].device)
    for x in every:
        if x.is_floating_point():
            finite = finite & x.isfinite().reshape(len(x), -1).all(1)
    return finite


def map_inputs(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """The same kind of input with a function applied to each tensor."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, Mapping):
        return {key: function(value) for key, value in inputs.items()}
    return tuple(function(value) for value in inputs)


def join_inputs(parts: Sequence[Inputs]) -> Inputs:
    """Several inputs of the same kind as one, along the first dimension."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    if isinstance(first, Mapping):
        return {key: torch.cat([part[key] for part in parts]) for key in first}  # type: ignore[index, call-overload]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def join_batches(parts: Sequence[tuple[Inputs, Tensor]]) -> tuple[Inputs, Tensor]:
    """Several pairs (inputs, targets) as one; one alone is not copied."""
    if len(parts) == 1:
        return parts[0]
    return join_inputs([inputs for inputs, _ in parts]), torch.cat([targets for _, targets in parts])


def call(model: nn.Module, inputs: Inputs) -> Any:
    """A tensor goes in as model(x), a tuple as model(*x), a dict as model(**x)."""
    forward: Callable[..., Any] = (
        model._call_impl if getattr(model, "_compiled_call_impl", None) is not None else model
    )
    if isinstance(inputs, Tensor):
        return forward(inputs)
    if isinstance(inputs, Mapping):
        return forward(**inputs)
    return forward(*inputs)


def call_with(model: nn.Module, parameters: Mapping[str, Tensor], inputs: Inputs) -> Any:
    """The same with other parameters in the place of the model's own."""
    if isinstance(inputs, Mapping):
        return functional_call(model, dict(parameters), (), dict(inputs))
    return functional_call(model, dict(parameters), inputs if isinstance(inputs, Tensor) else tuple(inputs))


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own module behind torch.compile, DataParallel and DistributedDataParallel."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "a TorchScript model cannot be watched layer by layer: give the nn.Module it was made from"
        )
    kind = type(model).__name__
    if kind == "OptimizedModule":
        return unwrap(model._orig_mod)  # type: ignore[arg-type]
    if isinstance(model, nn.DataParallel) or kind == "DistributedDataParallel":
        return unwrap(model.module)  # type: ignore[arg-type]
    if kind == "FullyShardedDataParallel":
        raise TypeError(
            "a model sharded by FSDP has no whole parameters on one machine: give the model before wrapping"
        )
    return model


def trainable(model: nn.Module, parameters: Parameters | None = None) -> dict[str, Tensor]:
    """The trainable parameters, or those of them that `parameters` (names or modules) tells, under their first names."""
    every: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not every:
        raise ValueError("the model has no trainable parameter: set requires_grad on those that should learn")
    if any(p.is_complex() for p in every.values()):
        raise ValueError("the model has complex parameters, whose gradients have no order to score by")
    if len(devices := {p.device for p in every.values()}) > 1:
        raise ValueError(
            f"the model's parameters lie on several devices, {', '.join(sorted(map(str, devices)))}: move the model to one"
        )
    if parameters is None:
        return every
    if isinstance(parameters, str | nn.Module | Tensor):
        parameters = [parameters]
    if not isinstance(parameters, Iterable):
        raise TypeError(f"parameters must be names or modules of the model, got {parameters!r}")
    chosen: set[int] = set()
    for part in parameters:
        found = _parameters_of(model, part)
        if not any(p.requires_grad for p in found):
            raise ValueError(f"parameters: {part!r} holds no trainable parameter of the model")
        chosen.update(id(p) for p in found)
    if not chosen:
        raise ValueError("parameters: at least one is needed")
    return {name: p for name, p in every.items() if id(p) in chosen}


def _parameters_of(model: nn.Module, part: str | nn.Module | Tensor) -> list[Tensor]:
    """Of the model's: a parameter itself, a module's, one by its name, or those of the module with that name."""
    if isinstance(part, Tensor | nn.Module):
        meant = {id(p) for p in ([part] if isinstance(part, Tensor) else part.parameters())}
        return [p for p in model.parameters() if id(p) in meant]
    if not isinstance(part, str):
        raise TypeError(f"parameters: {part!r} is neither a name nor a module of the model")
    named = dict(model.named_parameters(remove_duplicate=False))
    if part in named:
        return [named[part]]
    modules = dict(model.named_modules())
    if part and part in modules:
        return list(modules[part].parameters())
    alike = get_close_matches(part, [*modules, *named], n=6) or list(filter(None, modules))
    raise ValueError(
        f"parameters: the model has no parameter or module named {part!r}; it has {in_short(alike) or 'no modules'}"
    )


def check_batch(device: torch.device, batch: Any, argument: str = "batch") -> tuple[Inputs, Any, int]:
    """(inputs, targets) and how many samples they hold, or an error that names what is wrong."""
    if not isinstance(batch, Sequence) or len(batch) != 2:
        raise TypeError(f"{argument} must be a pair (inputs, targets), got {type(batch).__name__}")
    inputs, targets = batch
    tensors = leaves(inputs) if isinstance(inputs, Tensor | Sequence | Mapping) else []
    if not tensors or not all(isinstance(x, Tensor) for x in tensors):
        raise TypeError(
            f"{argument}: inputs must be a tensor, or a tuple or dict of tensors, got {_in_words(inputs)}"
        )
    counts = {x.shape[0] if x.dim() else 0 for x in tensors}
    count = counts.pop()
    if counts:
        raise ValueError(
            f"{argument}: the inputs differ in their first dimension, which is the samples': {[list(x.shape) for x in tensors]}"
        )
    if count == 0:
        raise ValueError(f"{argument} is empty: at least one sample is needed")
    if isinstance(targets, Tensor):
        if targets.dim() == 0 or targets.shape[0] != count:
            shape = list(targets.shape)
            raise ValueError(
                f"{argument}: {count} inputs but targets of shape {shape}: one target a sample is needed"
            )
        tensors = [*tensors, targets]
    for tensor in tensors:
        if tensor.device != device:
            what = "targets" if tensor is targets else "inputs"
            raise ValueError(
                f"{argument}: {what} are on {tensor.device} and the model is on {device}: move one of them"
            )
    return inputs, targets, count


def _in_words(inputs: Any) -> str:
    """The kind of what was given for inputs, and of what it holds."""
    kind = type(inputs).__name__
    if not isinstance(inputs, tuple | list | Mapping):
        return kind
    held = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
    told = f"{kind} of {', '.join(sorted({type(part).__name__ for part in held})) or 'nothing'}"
    # how a learner's `observe` puts inputs and task together
    if isinstance(inputs, tuple) and len(held) == 2 and any(isinstance(part, Tensor) for part in held):
        told += (
            ": a task, a tensor, goes with inputs of one tensor; several inputs hold the task themselves, "
            "observe((a, b, task), y) or observe({'a': a, 'task': task}, y)"
        )
    return told


def check_losses(losses: Any, count: int) -> Tensor:
    if not isinstance(losses, Tensor) or losses.shape != (count,):
        shape = list(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        if shape == [count, count]:
            cure = (
                "outputs [N, 1] and targets [N] make a table of all pairs, give outputs.squeeze(1); or, where a sample has that many "
                "losses, take their mean, .mean(1)"
            )
        elif isinstance(losses, Tensor) and losses.dim() > 1 and len(losses) == count:
            cure = (
                "take the mean of each sample's, .flatten(1).mean(1), over what counts where some is ignored"
            )
        else:
            cure = "a loss of torch takes reduction='none'; a loss that a model returns itself is a mean over the batch"
        raise ValueError(f"loss_fn must return one loss a sample, shape [{count}], got {shape}: {cure}")
    return losses
