import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from corestream import ReplayMemory
from corestream.learners import Uniform


def learned(model, sgd, batch, **options):
    learner = Uniform(model, sgd(model, 0.0), ReplayMemory(6, balance=None), replay=6, **options)
    learner.observe(*batch(6))
    learner.end_task()
    return learner


def test_the_loss_is_the_batchs_mean_and_lam_times_the_replays(model, sgd, batch):
    learner = learned(model, sgd, batch, lam=0.3)
    x, y = batch(10, seed=1)
    old = batch(6)
    expected = cross_entropy(model(x), y) + 0.3 * cross_entropy(model(old[0]), old[1])
    assert torch.allclose(learner.observe(x, y).loss, expected)


def test_a_network_that_normalises_by_its_batch_sees_batch_and_replay_apart(sgd, batch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3))
    learner = learned(model, sgd, batch)
    x, y = batch(10, seed=1)
    old = batch(6)
    expected = cross_entropy(model(x), y) + cross_entropy(model(old[0]), old[1])
    assert torch.allclose(learner.observe(x, y).loss, expected, atol=1e-6)


def hardest(outputs, targets):
    """The mean over the worse half of the batch, as every sample's loss."""
    losses = cross_entropy(outputs, targets, reduction="none")
    return losses * (losses >= losses.median())


def test_a_loss_that_goes_by_its_batch_has_a_pass_for_each(model, sgd, batch):
    """Otherwise the replay batch would have a part in the batch's own loss."""
    learner = Uniform(model, sgd(model), ReplayMemory(6, balance=None), loss_fn=hardest, replay=6)
    learner.observe(*batch(6))
    learner.end_task()
    for seed in range(1, 9):
        (x, y), old = batch(10, seed=seed), learner.memory.samples
        expected = hardest(model(x), y).mean() + hardest(model(old.inputs), old.targets).mean()
        assert torch.allclose(learner.observe(x, y).loss, expected, atol=1e-5)


def test_adapt_needs_k(model, sgd):
    with pytest.raises(ValueError, match="adapt=True needs k"):
        Uniform(model, sgd(model), ReplayMemory(6), adapt=True)


def test_adapt_trains_on_what_the_method_chooses(model, sgd, batch):
    class Last(Uniform):
        def choose(self, samples, k):
            return torch.arange(len(samples) - 1, len(samples) - 1 - k, -1)

    learner = Last(model, sgd(model), ReplayMemory(6, balance=None), k=3, adapt=True)
    x, y = batch(9)
    expected = cross_entropy(model(x[-3:]), y[-3:])
    step = learner.observe(x, y)
    assert step.picked.tolist() == [8, 7, 6]
    assert torch.allclose(step.loss, expected)


@pytest.mark.parametrize(("adapt", "kept"), [(True, [6, 7, 8]), ("training", [0, 1, 2, 4, 5, 6, 7, 8])])
def test_what_is_not_trained_on_may_be_remembered_or_not(model, sgd, batch, adapt, kept):
    class Last(Uniform):
        def choose(self, samples, k):
            return torch.arange(len(samples)).flip(0)[:k]

    learner = Last(model, sgd(model), ReplayMemory(9, balance=None), k=3, adapt=adapt)
    x, y = batch(9)
    x[3] = torch.nan
    assert learner.observe(x, y, ids=torch.arange(9)).picked.tolist() == [8, 7, 6]
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == kept


def test_adapt_is_one_of_three(model, sgd):
    with pytest.raises(ValueError, match="adapt must be True, False or 'training', got 'all'"):
        Uniform(model, sgd(model), ReplayMemory(6), k=3, adapt="all")


def test_fewer_choices_than_k_are_trained_on_alone(model, sgd, batch):
    class Two(Uniform):
        def choose(self, samples, k):
            return torch.tensor([4, 1, -1]) if len(samples) == 9 else torch.arange(len(samples))

    learner = Two(model, sgd(model), ReplayMemory(6, balance=None), k=3, adapt=True)
    x, y = batch(9)
    expected = cross_entropy(model(x[[4, 1]]), y[[4, 1]])
    step = learner.observe(x, y, ids=torch.arange(9))
    assert step.picked.tolist() == [4, 1, -1]
    assert torch.allclose(step.loss, expected)
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == [1, 4]
