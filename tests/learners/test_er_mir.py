from copy import deepcopy

import pytest
import torch
from torch.nn.functional import cross_entropy

from corestream import ReplayMemory
from corestream.learners import ERMIR
from corestream.memory import Samples


def make(model, sgd, **options):
    return ERMIR(model, sgd(model, 0.5), ReplayMemory(20, policy="reservoir", balance=None), **options)


def test_the_replayed_are_those_whose_loss_a_real_step_would_raise_most(model, sgd, batch):
    learner = make(model, sgd, replay=3, search=20)
    stored, stream = Samples.of(*batch(20)), Samples.of(*batch(10, seed=4))
    learner.memory.add(stored, learner.generator)
    other = deepcopy(model)
    cross_entropy(other(stream.inputs), stream.targets).backward()
    with torch.no_grad():
        for p in other.parameters():
            p -= 0.5 * p.grad
    memory = learner.memory.samples
    rise = cross_entropy(other(memory.inputs), memory.targets, reduction="none") - cross_entropy(
        model(memory.inputs), memory.targets, reduction="none"
    )
    replayed = learner._replayed(stream)
    expected = memory.inputs[rise.topk(3).indices]
    assert torch.allclose(replayed.inputs.sort(0).values, expected.sort(0).values)


def test_a_memory_sample_that_the_batch_contradicts_is_replayed(model, sgd, batch):
    learner = make(model, sgd, replay=1, search=20)
    x, y = batch(12)
    for _ in range(100):
        model_loss = learner.observe(x, y)
    wrong = Samples.of(x[:1].expand(10, 4), ((y[:1] + 1) % 3).expand(10))
    found = learner._replayed(wrong)
    assert int(found.targets[0]) == int(y[0])
    assert float(model_loss.loss) < 1.0


def test_the_virtual_step_leaves_the_model_alone(model, sgd, batch):
    learner = make(model, sgd)
    learner.memory.add(Samples.of(*batch(12)), learner.generator)
    before = deepcopy(model.state_dict())
    learner._replayed(Samples.of(*batch(6, seed=1)))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_another_policy_is_refused(model, sgd):
    with pytest.raises(ValueError, match="policy='reservoir'"):
        ERMIR(model, sgd(model), ReplayMemory(5))


def test_the_virtual_step_has_each_parameters_own_rate(model, batch):
    groups = [{"params": model.hidden.parameters(), "lr": 0.0}, {"params": [model.head.bias], "lr": 1.0}]
    memory = ReplayMemory(20, policy="reservoir", balance=None)
    learner = ERMIR(model, torch.optim.SGD(groups, lr=0.5), memory)
    moved = learner._virtual_step(Samples.of(*batch()), torch.ones(12, dtype=torch.bool))
    assert torch.equal(moved["hidden.weight"], model.hidden.weight)
    assert torch.equal(moved["head.weight"], model.head.weight)  # which no group has
    assert not torch.equal(moved["head.bias"], model.head.bias)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_picks_of_a_batch_are_those_without_a_sample_whose_loss_is_not_finite(model, sgd, batch, bad):
    learner = make(model, sgd, k=3, adapt=True)
    x, y = batch(10)
    x[4] = bad
    good = torch.tensor([n for n in range(10) if n != 4])
    other = deepcopy(model)
    cross_entropy(other(x[good]), y[good]).backward()
    with torch.no_grad():
        for p in other.parameters():
            p -= 0.5 * p.grad
        rise = cross_entropy(other(x[good]), y[good], reduction="none") - cross_entropy(
            model(x[good]), y[good], reduction="none"
        )
    assert learner.observe(x, y).picked.tolist() == good[rise.topk(3).indices].tolist()
    assert all(p.isfinite().all() for p in model.parameters())


def test_where_fewer_than_k_are_finite_the_others_are_neither_picked_nor_kept(model, sgd, batch):
    learner = make(model, sgd, k=4, adapt=True)
    x, y = batch(7)
    x[:5] = torch.nan
    step = learner.observe(x, y, ids=torch.arange(7))
    assert sorted(step.picked.tolist()) == [-1, -1, 5, 6]
    assert step.picked.tolist()[2:] == [-1, -1]
    assert step.loss.isfinite()
    assert sorted(learner.memory.ids.tolist()) == [5, 6]
