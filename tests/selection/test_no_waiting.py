"""The selectors that run inside a step never look at a value, so that the step can be captured in a CUDA graph."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from corestream.selection.grad_matching import grad_matching
from corestream.selection.gss import gss_replace, gss_scores
from corestream.selection.herding import herding
from corestream.selection.mir import most_interfered

WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "item")


class NoWaiting(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        if any(operator.__name__.startswith(name) for name in WAITING):
            raise AssertionError(f"{operator} waits for the device")
        return operator(*arguments, **(options or {}))


def replace():
    gss_replace(torch.rand(6), torch.tensor(6), torch.rand(4), torch.rand(4, 2))


def scores():
    gss_scores(torch.rand(4, 3), torch.rand(4), torch.rand(3), torch.ones(3, dtype=torch.bool))


STEPS = {
    "grad-matching": lambda: grad_matching(torch.eye(5), 3),
    "herding": lambda: herding(torch.rand(5, 2), 3),
    "er-mir": lambda: most_interfered(torch.rand(5), torch.rand(5), 2),
    "gss replacement": replace,
    "gss scores": scores,
}


@pytest.mark.parametrize("name", STEPS)
def test_no_value_is_looked_at(name):
    with NoWaiting():
        STEPS[name]()


def test_the_guard_notices_a_look():
    with NoWaiting(), pytest.raises(AssertionError, match="waits"):
        torch.rand(3)[torch.tensor(1)]
