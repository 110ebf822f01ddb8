"""Whether samples depend on each other: whether one pass over many does for each what a pass without the others would."""

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..draws import random_state, same_draws
from .calling import LossFn, call, check_losses, cross_entropy, leaves, map_inputs
from .due import is_due
from .identity import identity
from .recorder import uncompiled
from .restoring import unchanged_buffers

Situation = tuple[Any, ...]
KNOWN_ANSWERS = 64  # of a model
BY_ROW = frozenset(
    {
        nn.Sequential,
        nn.Linear,
        nn.Flatten,
        nn.Identity,
        nn.Dropout,
        nn.ReLU,
        nn.LeakyReLU,
        nn.ELU,
        nn.GELU,
        nn.SiLU,
        nn.Tanh,
        nn.Sigmoid,
    }
)


class Looks:
    """When to look whether samples depend on each other: now and then (`is_due`), and when a batch brings as many classes as all had that
    were looked at. A loss over the classes of its batch, say, couples samples only where there are several."""

    def __init__(self, asked: int = 0, classes: Iterable[int] = ()) -> None:
        self.asked, self.classes = asked, set(classes)

    def is_due(self, targets: Any, device: torch.device) -> bool:
        """Asked once for every batch. A card is not asked for classes, for that would wait."""
        new = _classes(targets) - self.classes
        due = len(new) >= max(1, len(self.classes)) or is_due(self.asked, device)
        self.asked += 1
        if due:
            self.classes |= new
        return due


def _classes(targets: Any) -> set[int]:
    return set(targets.tolist()) if _are_classes(targets) and not targets.is_cuda else set()


def _are_classes(targets: Any) -> bool:
    return isinstance(targets, Tensor) and targets.dim() == 1 and not targets.is_floating_point()


# what was found, and when to look again
_ANSWERS: WeakKeyDictionary[nn.Module, dict[Situation, tuple[bool, Looks]]] = WeakKeyDictionary()


def situation(model: nn.Module, loss_fn: LossFn | None) -> Situation:
    """What the answer depends on: the loss, and every layer's mode. When one changes, samples may begin to depend on each other."""
    return (identity(loss_fn), *(module.training for module in model.modules()))


def stands_alone(model: nn.Module, loss_fn: LossFn | None, inputs: Any, targets: Any) -> bool:
    """Whether samples have the same losses without the others, by what was seen so far, now included where it is due."""
    known, key = _ANSWERS.setdefault(model, {}), situation(model, loss_fn)
    alone, looks = known.pop(key, (True, Looks()))
    if len(known) >= KNOWN_ANSWERS:
        del known[next(iter(known))]
    if alone and looks.is_due(targets, leaves(inputs)[0].device):
        alone = look(model, loss_fn, inputs, targets)
    known[key] = alone, looks
    return alone


@dataclass(frozen=True)
class Pass:
    """What a forward pass over some of the samples did."""

    losses: Tensor
    largest: float  # of the losses and outputs
    draws: bool  # from torch's generator
    buffers: dict[str, Tensor]


@torch.enable_grad()  # as in the pass itself, whose small functions would be compiled anew without
def look(model: nn.Module, loss_fn: LossFn | None, inputs: Any, targets: Any) -> bool:
    """Whether samples have the same losses without the others, and do not change buffers, the model's or the loss's, by what they are.

    Gradients do not tell all of it: statistics of raw inputs, or what lies before the first layer that is watched, change losses alone.
    Where the model draws random numbers, fewer samples would draw others, and copies stand in for the rest. That hides a loss that depends
    on their number alone: so all of it is looked at again as in eval mode.
    """
    if len(leaves(inputs)[0]) < 2 or _cannot_mix(model, loss_fn, inputs):
        return True
    judge: LossFn = cross_entropy if loss_fn is None else loss_fn
    device = leaves(inputs)[0].device
    every = torch.arange(len(leaves(inputs)[0]), device=device)

    def over(rows: Tensor) -> Pass:
        with _same_chance(device), unchanged_buffers(model, loss_fn), uncompiled(model):
            before = random_state(device)
            outputs = call(model, map_inputs(lambda x: x[rows], inputs))
            losses: Any = judge(outputs, map_inputs(lambda y: y[rows], targets))
            losses = check_losses(losses, len(rows)).detach()
            sizes = [losses, outputs.detach()] if isinstance(outputs, Tensor) else [losses]
            largest = max(float(one.nan_to_num(0, 0, 0).abs().max()) for one in sizes)
            buffers = {name: buffer.detach().clone() for name, buffer in _buffers(model, loss_fn).items()}
            return Pass(losses, largest, not torch.equal(before, random_state(device)), buffers)

    def alike(losses: Tensor, others: Tensor) -> bool:
        least = _tolerance(model, losses) * again.largest
        return torch.allclose(losses, others, rtol=0, atol=least, equal_nan=True)

    first, again = over(every), over(every)  # the first may make tables that stay
    if not alike(first.losses, again.losses):
        return True  # it draws what cannot be drawn again, which hides all else
    before = _buffers(model, loss_fn)
    for part in _halves(every, targets):
        # for fewer samples it would draw other numbers, and one alone is special: then copies of these take the others' place
        copied = again.draws or len(part) == 1
        found = over(part[every % len(part)].index_copy(0, part, part) if copied else part)
        losses = found.losses[part] if copied else found.losses
        if not alike(again.losses[part], losses) or not all(
            _same(again.buffers[n], b, before[n]) for n, b in found.buffers.items()
        ):
            return False
    if again.draws and any(module.training for module in model.modules()):
        with _not_training(model), suppress(Exception):  # the loss may not take what the model gives then
            return look(model, loss_fn, inputs, targets)
    return True


@contextmanager
def _not_training(model: nn.Module) -> Iterator[None]:
    """By the flags alone: a model's own `train` may do more, and leave a layer as it was."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _cannot_mix(model: nn.Module, loss_fn: LossFn | None, inputs: Any) -> bool:
    """Whether nothing but layers that are known to go row by row stand one behind the other: there is no need to look."""
    return (
        (loss_fn is None or loss_fn is cross_entropy)
        and isinstance(inputs, Tensor)
        and inputs.dim() > 1
        and all(
            type(module) in BY_ROW
            and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
            and not (isinstance(module, nn.Flatten) and module.start_dim != 1)
            for module in model.modules()
        )
    )


def _halves(every: Tensor, targets: Any) -> tuple[Tensor, ...]:
    """The largest sample, or the only one of its kind, lies in one of them. They have different classes, for a loss may go by those that
    are there."""
    if _are_classes(targets):
        every = targets.long().argsort(stable=True)
    return every.tensor_split([(len(every) + 1) // 2])


def _buffers(model: nn.Module, loss_fn: LossFn | None) -> dict[str, Tensor]:
    own = loss_fn.named_buffers() if isinstance(loss_fn, nn.Module) else ()
    return {**dict(model.named_buffers()), **{f"loss {name}": buffer for name, buffer in own}}


@contextmanager
def _same_chance(device: torch.device) -> Iterator[None]:
    """What is drawn inside is drawn again afterwards."""
    numpy = sys.modules.get("numpy")  # what a model draws from is its own choice
    before = random.getstate(), None if numpy is None else numpy.random.get_state()
    with same_draws(device):
        try:
            yield
        finally:
            random.setstate(before[0])
            if numpy is not None:
                numpy.random.set_state(before[1])


def _same(one: Tensor, other: Tensor, before: Tensor) -> bool:
    """Whether a buffer is the same after both passes, and not because a bad sample has made it NaN in both."""
    if one.layout != torch.strided or one.is_quantized:
        return True  # tables, not statistics
    if not one.shape == other.shape == before.shape or not torch.allclose(
        one, other, rtol=0, atol=0, equal_nan=True
    ):
        return False
    return not bool((one.isnan() & ~before.isnan()).any())


def _tolerance(model: nn.Module, losses: Tensor) -> float:
    """How far rounding alone may move a loss, where products of other shapes are taken in another order."""
    types = {losses.dtype, *(p.dtype for p in model.parameters() if p.is_floating_point())}
    if types == {torch.float64}:
        return 1e-9
    return 1e-4 if types <= {torch.float32, torch.float64} and losses.device.type == "cpu" else 2e-2  # TF32
