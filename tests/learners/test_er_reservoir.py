import pytest
import torch
from scipy.stats import chisquare
from torch.nn.functional import cross_entropy

from corestream import ReplayMemory
from corestream.learners import ERReservoir


def reservoir(capacity):
    return ReplayMemory(capacity, policy="reservoir", balance=None)


def test_every_sample_of_the_stream_has_the_same_chance_to_be_kept(model, sgd):
    counts = torch.zeros(40)
    for seed in range(120):
        generator = torch.Generator().manual_seed(seed)
        learner = ERReservoir(model, sgd(model, 0.0), reservoir(8), generator=generator)
        for start in range(0, 40, 10):
            ids = torch.arange(start, start + 10)
            learner.observe(torch.zeros(10, 4), torch.zeros(10, dtype=torch.long), ids=ids)
        counts[learner.memory.ids] += 1
    assert counts.sum() == 120 * 8
    assert chisquare(counts.numpy()).pvalue > 0.001


def test_the_replay_batch_joins_the_mean(model, sgd, batch):
    learner = ERReservoir(model, sgd(model, 0.0), reservoir(5), replay=5)
    x, y = batch(5, seed=1)
    learner.observe(x, y)
    new = batch(10, seed=2)
    step = learner.observe(*new)
    expected = cross_entropy(model(torch.cat([new[0], x])), torch.cat([new[1], y]))
    assert torch.allclose(step.loss, expected)


def test_another_policy_is_refused(model, sgd):
    with pytest.raises(ValueError, match="policy='reservoir'"):
        ERReservoir(model, sgd(model), ReplayMemory(5))


def test_a_reservoir_takes_targets_that_are_no_classes(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = ReplayMemory(10, policy="reservoir")
    learner = ERReservoir(
        model, optimizer, memory, loss_fn=lambda outputs, targets: (outputs - targets).square().mean(1)
    )
    learner.observe(torch.randn(12, 4), torch.randn(12, 3))
    assert len(memory) == 10
