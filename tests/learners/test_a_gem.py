import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from corestream import NonFiniteError, ReplayMemory
from corestream.learners import AGEM
from corestream.learners.a_gem import project


def test_a_conflicting_gradient_loses_its_part_along_the_reference():
    g, reference = {"w": torch.tensor([-1.0, 2.0])}, {"w": torch.tensor([2.0, 0.0])}
    assert project(g, reference)["w"].tolist() == [0.0, 2.0]


def test_an_agreeing_gradient_stays_as_it_is():
    g, reference = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([2.0, 0.0])}
    assert project(g, reference)["w"].tolist() == [1.0, 2.0]


def test_the_inner_product_runs_over_all_parameters():
    g = {"a": torch.tensor([3.0]), "b": torch.tensor([-1.0])}
    reference = {"a": torch.tensor([1.0]), "b": torch.tensor([1.0])}
    assert project(g, reference) == g
    g["b"] = torch.tensor([-5.0])
    projected = project(g, reference)
    assert float(projected["a"] + projected["b"]) == pytest.approx(0.0)


def test_a_zero_reference_changes_nothing():
    g = {"w": torch.tensor([1.0, -1.0])}
    assert project(g, {"w": torch.zeros(2)})["w"].tolist() == [1.0, -1.0]


def test_a_step_never_raises_the_memorys_loss_to_first_order(model, sgd, batch, generator):
    memory = ReplayMemory(12, balance=None)
    learner = AGEM(model, sgd(model, 1e-4), memory, replay=12, generator=generator)
    x, y = batch(12)
    for _ in range(200):
        learner.observe(x, y)
    learner.end_task()
    before = cross_entropy(model(x), y)
    learner.observe(x, (y + 1) % 3)  # opposes what is remembered
    after = cross_entropy(model(x), y)
    assert float((after - before).detach()) < 1e-6


def test_a_parameter_that_only_the_memory_uses_is_projected_too():
    g, reference = {"a": torch.tensor([-1.0])}, {"a": torch.tensor([1.0]), "b": torch.tensor([1.0])}
    projected = project(g, reference)
    assert (projected["a"].tolist(), projected["b"].tolist()) == ([-0.5], [0.5])
    assert project({"c": torch.tensor([1.0])}, reference).keys() == {"c"}


def test_a_head_that_no_sample_goes_through_is_left_alone(batch, generator):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleList(nn.Linear(4, 3) for _ in range(3))

        def forward(self, x, task):
            return self.heads[int(task[0])](x)

    model, (x, y) = Heads(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    before = model.heads[2].weight.clone()
    AGEM(model, optimizer, ReplayMemory(6), generator=generator).observe(
        x, y, torch.zeros(12, dtype=torch.long)
    )
    assert torch.equal(model.heads[2].weight, before)


def test_a_head_that_is_replaced_on_the_way_is_learned(model, sgd, batch, generator):
    optimizer, (x, y) = sgd(model), batch()
    learner = AGEM(model, optimizer, ReplayMemory(6), generator=generator)
    learner.observe(x, y)
    model.head = nn.Linear(8, 3)
    optimizer.add_param_group({"params": model.head.parameters()})
    before = model.head.weight.clone()
    learner.observe(x, y)
    assert not torch.equal(model.head.weight, before)


@pytest.mark.parametrize("size", [1e-4, 1e2])
def test_half_precision_gradients_are_projected_in_single_precision(size):
    g = {"w": torch.full((100,), -size, dtype=torch.float16)}
    projected = project(g, {"w": -g["w"]})["w"]
    assert projected.dtype == torch.float16
    assert projected.abs().max() == 0


class Tempered(nn.Module):
    """A loss that learns."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, outputs, targets):
        return cross_entropy(outputs / self.temperature, targets, reduction="none")


def flat_gradient(model, loss_fn, learning, x, y):
    parts = torch.autograd.grad(loss_fn(model(x), y).mean(), learning)
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize("part", ["model and loss", "head and loss"])
def test_all_that_the_optimiser_has_to_learn_is_projected_and_learned(model, batch, generator, part):
    loss_fn = Tempered()
    learning = [*(model if part == "model and loss" else model.head).parameters(), *loss_fn.parameters()]
    optimizer = torch.optim.SGD(learning, lr=0.1)
    learner = AGEM(
        model, optimizer, ReplayMemory(12, balance=None), replay=12, loss_fn=loss_fn, generator=generator
    )
    hidden = model.hidden.weight.detach().clone()

    def flat():
        return torch.cat([p.detach().flatten() for p in learning])

    x, y = batch(12)
    expected = flat() - 0.1 * flat_gradient(model, loss_fn, learning, x, y)
    learner.observe(x, y)
    torch.testing.assert_close(flat(), expected)
    for _ in range(50):
        learner.observe(x, y)
    learner.end_task()
    other = (y + 1) % 3
    g = flat_gradient(model, loss_fn, learning, x, other)
    reference = flat_gradient(model, loss_fn, learning, learner.memory.inputs, learner.memory.targets)
    assert g @ reference < 0
    expected = flat() - 0.1 * (g - (g @ reference) / (reference @ reference) * reference)
    learner.observe(x, other)
    torch.testing.assert_close(flat(), expected)
    assert loss_fn.temperature != 1
    assert torch.equal(hidden, model.hidden.weight) == (part == "head and loss")
    assert all(p.grad is None for p in learning)


def test_a_memory_whose_loss_is_not_finite_is_an_error_and_no_step(model, sgd, batch, generator):
    learner = AGEM(model, sgd(model), ReplayMemory(6), replay=6, generator=generator)
    learner.observe(*batch())
    learner.end_task()
    learner.memory.inputs[0] = torch.nan
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(NonFiniteError):
        learner.observe(*batch(seed=1))
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
