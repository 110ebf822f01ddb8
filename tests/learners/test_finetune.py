from copy import deepcopy

import pytest
import torch
from torch.nn.functional import cross_entropy

from corestream.errors import NonFiniteError
from corestream.learners import Finetune


def test_one_observe_is_one_sgd_step_on_the_batch(model, sgd, batch):
    x, y = batch()
    other = deepcopy(model)
    optimizer = sgd(other)
    cross_entropy(other(x), y).backward()
    optimizer.step()
    step = Finetune(model, sgd(model)).observe(x, y)
    assert step.picked is None
    assert all(torch.allclose(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_k_random_samples_of_the_batch_are_trained_on(model, sgd, batch, generator):
    x, y = batch(20)
    learner = Finetune(model, sgd(model, 0.0), k=5, generator=generator)
    counts = torch.zeros(20)
    for _ in range(400):
        step = learner.observe(x, y)
        assert len(step.picked.unique()) == 5
        assert torch.allclose(step.loss, cross_entropy(model(x[step.picked]), y[step.picked]))
        counts[step.picked] += 1
    # each sample is picked with 1/4: 100 ± 4 standard deviations of 8.7
    assert counts.min() > 65
    assert counts.max() < 135


def test_end_task_decays_the_rate_and_clears_momentum(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    learner = Finetune(model, optimizer, lr_decay=0.5)
    learner.observe(*batch())
    learner.end_task()
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert not optimizer.state


def test_a_loss_that_is_not_finite_is_an_error_and_leaves_the_model(model, sgd, batch):
    x, y = batch()
    x[3, 0] = torch.nan
    before = deepcopy(model.state_dict())
    with pytest.raises(NonFiniteError):
        Finetune(model, sgd(model)).observe(x, y)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_k_below_one_is_refused(model, sgd):
    with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
        Finetune(model, sgd(model), k=0)
