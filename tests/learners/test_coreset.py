import pytest
import torch

from corestream import ReplayMemory
from corestream.learners import Coreset, Uniform


class First(Coreset):
    """Chooses by rising first feature."""

    def choose(self, samples, k):
        return samples.inputs[:, 0].argsort()[:k]


def test_the_memory_takes_the_front_of_the_order_and_older_tasks_lose_the_back(model, sgd, batch):
    learner = First(model, sgd(model), ReplayMemory(8, balance=None))
    tasks = [batch(20, seed=1), batch(20, seed=2)]
    for x, y in tasks:
        learner.observe(x, y)
        learner.end_task()
    for number, (x, _) in enumerate(tasks):
        kept = learner.memory.inputs[learner.memory.tasks == number][:, 0]
        assert kept.tolist() == x[:, 0].sort().values[:4].tolist()


def test_candidates_are_those_since_the_sweep_began(model, sgd, batch):
    learner = First(model, sgd(model), ReplayMemory(50, balance=None))
    learner.start_sweep()
    learner.observe(*batch(20), ids=torch.arange(20))
    learner.start_sweep()
    learner.observe(*batch(5), ids=torch.arange(5))
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == [0, 1, 2, 3, 4]


def test_what_is_not_chosen_still_fills_a_share_that_would_stay_empty(model, sgd, batch):
    class Shy(Coreset):
        def choose(self, samples, k):
            return torch.tensor([3, 5])

    learner = Shy(model, sgd(model), ReplayMemory(4, balance=None))
    learner.observe(*batch(10), ids=torch.arange(10))
    learner.end_task()
    assert len(learner.memory) == 4
    assert {3, 5} <= set(learner.memory.ids.tolist())


def test_candidates_that_all_fit_keep_the_order_for_later(model, sgd, batch):
    learner = First(model, sgd(model), ReplayMemory(8, balance=None))
    x, y = batch(6, seed=1)
    learner.observe(x, y)
    learner.end_task()
    learner.observe(*batch(20, seed=2))
    learner.end_task()
    kept = learner.memory.inputs[learner.memory.tasks == 0][:, 0]
    assert kept.tolist() == x[:, 0].sort().values[:4].tolist()


def test_under_a_balance_each_class_gives_the_first_of_its_own(model, sgd, batch):
    learner = First(model, sgd(model), ReplayMemory(6, balance="class"))
    x, y = batch(30)
    learner.observe(x, y)
    learner.end_task()
    assert sorted(learner.memory.targets.tolist()) == [0, 0, 1, 1, 2, 2]
    order = x[:, 0].argsort()[:6]
    for label in range(3):
        mine = x[order[y[order] == label], 0][:2].tolist()
        assert set(mine) <= set(learner.memory.inputs[:, 0].tolist())


def test_the_candidates_are_bounded(model, sgd, batch):
    learner = Uniform(model, sgd(model), ReplayMemory(100, balance=None), candidates=7)
    learner.observe(*batch(30))
    learner.end_task()
    assert len(learner.memory) == 7


def test_a_reservoir_leaves_nothing_to_choose(model, sgd):
    with pytest.raises(ValueError, match="reservoir"):
        Uniform(model, sgd(model), ReplayMemory(5, policy="reservoir"))


def test_uniform_keeps_classes_as_they_come(model, sgd, generator):
    y = torch.tensor([0] * 90 + [1] * 10)
    learner = Uniform(model, sgd(model), ReplayMemory(50, balance=None), generator=generator)
    learner.observe(torch.randn(100, 4), y)
    learner.end_task()
    assert 40 <= int((learner.memory.targets == 0).sum()) <= 49
