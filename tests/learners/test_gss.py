import pytest
import torch

from corestream import ReplayMemory
from corestream.learners import GSS
from corestream.memory import Samples


def make(model, sgd, capacity, **options):
    return GSS(model, sgd(model, 0.0), ReplayMemory(capacity, balance=None), **options)


def test_the_first_samples_fill_the_memory(model, sgd, batch):
    learner = make(model, sgd, 8)
    learner.observe(*batch(5), ids=torch.arange(5))
    learner.observe(*batch(5, seed=1), ids=torch.arange(5, 10))
    learner.end_task()
    assert sorted(learner.memory.ids.tolist())[:5] == [0, 1, 2, 3, 4]
    assert len(learner.memory) == 8


def test_copies_of_what_is_stored_never_enter(model, sgd, batch, generator):
    learner = make(model, sgd, 4, compare=4, generator=generator)
    x, y = batch(4)
    learner.observe(x, y, ids=torch.arange(4))
    for _ in range(20):
        learner.observe(x, y, ids=torch.full((4,), 99))
    learner.end_task()
    assert sorted(learner.memory.ids.tolist()) == [0, 1, 2, 3]


def test_a_sample_of_opposite_gradient_replaces_a_redundant_one(model, sgd, generator):
    learner = make(model, sgd, 4, compare=4, generator=generator)
    x = torch.randn(1, 4, generator=generator).expand(4, 4)
    learner.observe(x, torch.zeros(4, dtype=torch.long), ids=torch.arange(4))
    for _ in range(10):
        # the same input with another label pulls the output layer the other way
        learner.observe(x[:1], torch.ones(1, dtype=torch.long), ids=torch.tensor([50]))
    learner.end_task()
    kept = learner.memory.ids.tolist()
    assert kept.count(50) == 1
    assert learner.memory.targets.sum() == 1


def test_adapt_trains_on_the_samples_least_like_the_memory(model, sgd, batch, generator):
    learner = make(model, sgd, 6, compare=6, k=2, adapt=True, generator=generator)
    x = torch.randn(1, 4, generator=generator).expand(6, 4)
    learner._remember(Samples.of(x, torch.zeros(6, dtype=torch.long)), torch.ones(6, dtype=torch.bool))
    y = torch.tensor([0, 0, 1, 0, 0, 2])
    assert set(learner.observe(x, y).picked.tolist()) == {2, 5}


def test_only_filled_slots_are_replayed(model, sgd, batch):
    learner = make(model, sgd, 50, replay=10)
    x, y = batch(3)
    learner.observe(x, y)
    losses = torch.nn.functional.cross_entropy(model(x), y)
    assert torch.allclose(learner.observe(x, y).loss, 2 * losses)


def test_a_reservoir_is_refused(model, sgd):
    with pytest.raises(ValueError, match="policy='reservoir' leaves nothing to choose"):
        GSS(model, sgd(model), ReplayMemory(8, policy="reservoir", balance=None))


def test_empty_slots_do_not_go_through_the_network(sgd):
    """All samples are one and the same, so that every batch has its statistics."""
    torch.manual_seed(0)
    model, x = (
        torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)),
        torch.tensor([1.0, 2, 3, 4]),
    )
    learner, y = make(model, sgd, 50, replay=10, compare=10), torch.zeros(3, dtype=torch.long)
    rows = []
    model.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0]))
    for _ in range(2):
        learner.observe(x.expand(3, 4), y)
    torch.testing.assert_close(model[0].running_mean, (1 - 0.9**3) * x)  # two batches and one replay
    assert all(torch.equal(row, x) for row in torch.cat(rows))


def test_a_memory_of_unknown_scores_is_refused(model, sgd, batch):
    memory = ReplayMemory(8)
    memory.replace(Samples.of(*batch(5)))
    with pytest.raises(ValueError, match="memory already holds 5 samples"):
        GSS(model, sgd(model), memory)
    assert len(memory) == 5


def test_a_state_brings_the_scores_of_its_memory(model, sgd, batch):
    learner = make(model, sgd, 8)
    learner.observe(*batch(5))
    learner.end_task()
    other = make(model, sgd, 8)
    other.load_state_dict(learner.state_dict())
    other.observe(*batch(1, seed=1))
    other.end_task()
    assert torch.equal(other.memory.inputs[:5], learner.memory.inputs)


def test_a_memory_drawn_from_by_task_is_refused(model, sgd):
    with pytest.raises(ValueError, match="replay_from='task' draws from one task"):
        GSS(model, sgd(model), ReplayMemory(8, replay_from="task"))
