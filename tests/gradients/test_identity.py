"""Layouts are found once for each loss: another one must not be taken for it, and the same one must stay the same."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from corestream import per_sample_gradients
from corestream.gradients.identity import identity
from corestream.gradients.reading import _READINGS, KNOWN_READINGS


def loss(outputs, targets, centred=False, share=1.0):
    """With `centred` every sample's loss depends on all the others."""
    if centred:
        outputs = outputs - share * outputs.mean(0)
    return cross_entropy(outputs, targets, reduction="none")


class Callable:
    def __init__(self, centred, deeper=False):
        self.centred = centred
        self.inner = Callable(centred) if deeper else None
        self.history, self.steps = [], 0

    def __call__(self, outputs, targets):
        self.history.append(float(outputs[0, 0].detach()))
        self.steps += 1
        return loss(outputs, targets, self.centred)

    def method(self, outputs, targets):
        return self.inner(outputs, targets)


class Module(nn.Module):
    def __init__(self, centred):
        super().__init__()
        self.part = nn.Sequential(nn.Identity())
        self.part[0].centred = centred

    def forward(self, outputs, targets):
        return loss(outputs, targets, self.part[0].centred)


def closure(centred):
    return lambda outputs, targets: loss(outputs, targets, centred)


def weighted(share):
    return lambda outputs, targets: loss(outputs, targets, True, share)


def with_default(centred):
    def one(outputs, targets, flag=centred):
        return loss(outputs, targets, flag)

    return one


def nested(centred):
    inner = closure(centred)
    return lambda outputs, targets: inner(outputs, targets)


class Slotted:
    __slots__ = ("centred",)

    def __init__(self, centred):
        self.centred = centred

    def __call__(self, outputs, targets):
        return loss(outputs, targets, self.centred)


class Holding(nn.Module):
    """A module that holds a function, in the place of a part."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, outputs, targets):
        return self.function(outputs, targets)


def decorated(function):
    @functools.wraps(function)
    def wrapped(*arguments):
        return function(*arguments)

    return wrapped


class TwoMethods:
    @decorated
    def plain(self, outputs, targets):
        return loss(outputs, targets)

    @decorated
    def centred(self, outputs, targets):
        return loss(outputs, targets, True)


PAIRS = {
    "slots": [Slotted(False), Slotted(True)],
    "module that holds a function": [Holding(loss), Holding(functools.partial(loss, centred=True))],
    "decorated methods": [TwoMethods().plain, TwoMethods().centred],
    "partial": [functools.partial(loss, centred=centred) for centred in (False, True)],
    "partial of a partial": [functools.partial(functools.partial(loss, centred=c)) for c in (False, True)],
    "closure": [closure(False), closure(True)],
    "closure of a closure": [nested(False), nested(True)],
    "a weight of none": [weighted(0.0), weighted(0.5)],
    "default": [with_default(False), with_default(True)],
    "object": [Callable(False), Callable(True)],
    "method": [Callable(False, deeper=True).method, Callable(True, deeper=True).method],
    "module": [Module(False), Module(True)],
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_loss_is_not_taken_for_another_of_the_same_code(pair, oracle, compare):
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    batch = torch.randn(8, 5, dtype=torch.float64), torch.arange(8) % 3
    for loss_fn in PAIRS[pair]:
        compare(per_sample_gradients(model, loss_fn, batch), oracle(model, batch, loss_fn, 0), 1e-10)


def test_the_same_loss_stays_the_same():
    class_weights = [torch.rand(3), torch.rand(3)]
    assert identity(closure(True)) == identity(closure(True))
    assert identity(weighted(0.3)) == identity(weighted(0.4))  # annealed from step to step
    assert identity(functools.partial(cross_entropy, weight=class_weights[0])) == identity(
        functools.partial(cross_entropy, weight=class_weights[1])
    )
    counting = Callable(False)
    counting(torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))
    before = identity(counting)
    counting(torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))
    assert identity(counting) == before


def test_a_method_that_is_no_plain_function_has_an_identity():
    class Cached:
        @functools.lru_cache  # noqa: B019
        def one(self, outputs, targets):
            return outputs

    assert identity(Cached().one) == identity(Cached().one)


def test_what_holds_itself_has_an_identity():
    """As a training program does: it holds the loss, which holds the program."""
    program = Callable(False)
    program.inner = module = Module(False)
    object.__setattr__(module, "program", program)

    def one(outputs, targets, owner=program):
        return loss(outputs, targets)

    program.function = one
    for loss_fn in (module, program, program.method, one, functools.partial(one, owner=program)):
        assert identity(loss_fn) == identity(loss_fn)


def test_a_function_that_names_itself_has_an_identity():
    def one(outputs, targets):
        return one

    assert identity(one) == identity(one)


def test_ever_new_losses_fill_no_memory():
    model, batch = nn.Linear(2, 3), (torch.randn(4, 2), torch.arange(4) % 3)
    for number in range(2 * KNOWN_READINGS):
        per_sample_gradients(model, functools.partial(loss, share=float(number)), batch)
    assert len(_READINGS[model]) == KNOWN_READINGS
