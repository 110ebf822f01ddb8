"""Whether one pass over many samples does for some of them what a pass of their own would."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..draws import random_state
from .calling import LossFn, call, check_losses, cross_entropy, leaves, map_inputs
from .capture import unchanged_buffers
from .identity import identity

KNOWN = 64  # answers kept of a model

_ANSWERS: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...], bool]] = WeakKeyDictionary()


def stands_alone(model: nn.Module, loss_fn: LossFn | None, inputs: Any, targets: Any) -> bool:
    """Whether samples have the same losses without the others, and a pass leaves the model's buffers alone.

    Gradients do not tell all of it: statistics of raw inputs, or what lies before the first layer that is watched, change losses alone.
    It is looked at once for each loss and mode.
    """
    key = (identity(loss_fn), *(module.training for module in model.modules()))
    known = _ANSWERS.setdefault(model, {})
    if key not in known:
        if len(known) >= KNOWN:
            del known[next(iter(known))]
        known[key] = _look(model, loss_fn or cross_entropy, inputs, targets)
    return known[key]


@torch.enable_grad()  # as in the pass itself: what is compiled would be compiled anew without
def _look(model: nn.Module, loss_fn: LossFn, inputs: Any, targets: Any) -> bool:
    device = leaves(inputs)[0].device
    every = torch.arange(len(leaves(inputs)[0]), device=device)
    half = (len(every) + 1) // 2

    def losses_of(rows: Tensor) -> tuple[Tensor, bool, bool]:
        """Of the first half; whether a buffer was changed, and whether random numbers were drawn."""
        with torch.random.fork_rng([device] if device.type == "cuda" else []), unchanged_buffers(model):
            buffers = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
            drawn = random_state(device)
            outputs = call(model, map_inputs(lambda x: x[rows], inputs))
            losses: Any = loss_fn(outputs, map_inputs(lambda y: y[rows], targets))
            after = dict(model.named_buffers())
            same = buffers.keys() == after.keys() and all(
                after[name] is own and torch.equal(own, value) for name, (own, value) in buffers.items()
            )
            return (
                check_losses(losses, len(rows))[:half].detach(),
                not same,
                not torch.equal(drawn, random_state(device)),
            )

    beside, changed, draws = losses_of(every)
    if changed:
        return False
    # for fewer samples it would draw other numbers: then copies of the first take the others' place
    alone = losses_of(every % half if draws else every[:half])[0]
    largest = float(beside.abs().nan_to_num(0, 0, 0).max())
    return torch.allclose(beside, alone, rtol=0, atol=_tolerance(beside) * largest, equal_nan=True)


def _tolerance(losses: Tensor) -> float:
    """How far rounding alone may move a loss, where products of other shapes are taken in another order."""
    if losses.dtype == torch.float64:
        return 1e-9
    return 1e-4 if losses.dtype == torch.float32 and not losses.is_cuda else 2e-2  # TF32
