import pytest
import torch

from corestream import ReplayMemory
from corestream.learners import Coreset, ICaRL, Uniform
from corestream.learners.features import features
from corestream.selection.herding import herding_per_class


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


class Turning(Coreset):
    """Chooses by rising first feature, after the first task by falling."""

    def choose(self, samples, k):
        return samples.inputs[:, 0].argsort(descending=len(self.memory) > 0)[:k]


@pytest.mark.parametrize(("shrink", "falling"), [("order", False), ("anew", True)])
def test_older_tasks_shrink_by_their_order_or_by_a_choice_made_anew(model, sgd, batch, shrink, falling):
    learner = Turning(model, sgd(model), ReplayMemory(8, balance=None), shrink=shrink)
    x, y = batch(20, seed=1)
    learner.observe(x, y)
    learner.end_task()
    learner.observe(*batch(20, seed=2))
    learner.end_task()
    first = x[:, 0].sort().values[:8]
    expected = first[4:] if falling else first[:4]
    assert learner.memory.inputs[learner.memory.tasks == 0][:, 0].sort().values.tolist() == expected.tolist()
    assert len(learner.memory) == 8


def test_a_choice_made_anew_is_of_each_task_for_itself_and_by_the_model_of_now(model, sgd, batch):
    learner = ICaRL(model, sgd(model), ReplayMemory(36, balance="class"), shrink="anew")
    for seed in (1, 2):
        learner.observe(*batch(30, seed=seed))
        learner.end_task()
    held = [learner.memory.samples[learner.memory.tasks == task] for task in (0, 1)]
    torch.nn.init.normal_(model.hidden.weight)  # what was chosen by the model of then would be another choice
    learner.observe(*batch(30, seed=3))
    learner.end_task()
    for task, old in enumerate(held):
        best = herding_per_class(features(model, old.inputs), old.targets, 12)
        kept = learner.memory.inputs[learner.memory.tasks == task]
        assert kept[kept[:, 0].argsort()].equal(old.inputs[best][old.inputs[best][:, 0].argsort()])


def test_nothing_is_chosen_anew_where_nothing_must_go(model, sgd, batch):
    asked = []

    class Asked(First):
        def choose(self, samples, k):
            asked.append(len(samples))
            return super().choose(samples, k)

    memory = ReplayMemory(40, policy="fixed", tasks=2, balance=None)
    learner = Asked(model, sgd(model), memory, shrink="anew")
    for seed in (1, 2):
        learner.observe(*batch(30, seed=seed))
        learner.end_task()
    assert asked == [30, 30]


def test_what_a_choice_made_anew_leaves_out_goes_first(model, sgd, batch):
    class Picky(Coreset):
        def choose(self, samples, k):
            return (samples.ids % 5 == 0).nonzero()[:, 0][:k] if len(self.memory) else torch.arange(k)

    learner = Picky(model, sgd(model), ReplayMemory(20, balance=None), shrink="anew")
    learner.observe(*batch(30, seed=1), ids=torch.arange(30))
    learner.end_task()
    learner.observe(*batch(30, seed=2), ids=torch.arange(100, 130))
    learner.end_task()
    kept = learner.memory.ids[learner.memory.tasks == 0].tolist()
    assert {0, 5, 10, 15} <= set(kept)
    assert len(kept) == 10


def test_an_unknown_way_to_shrink_is_refused(model, sgd):
    with pytest.raises(ValueError, match="shrink must be 'order' or 'anew', got 'back'"):
        First(model, sgd(model), ReplayMemory(8), shrink="back")
