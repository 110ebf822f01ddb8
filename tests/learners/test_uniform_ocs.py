import pytest
import torch

import corestream
from corestream import ReplayMemory
from corestream.learners import UniformOCS


def test_random_samples_are_trained_on_and_the_picks_of_ocs_are_remembered(model, sgd, batch, generator):
    learner = UniformOCS(model, sgd(model, 0.0), ReplayMemory(9), k=4, warm_start=0, generator=generator)
    x, y = batch(40)
    scored = corestream.score(model, None, (x, y)).top(4)
    seen = set()
    for _ in range(30):
        seen |= set(learner.observe(x, y, ids=torch.arange(40)).picked.tolist())
    assert len(seen) > 30
    learner.end_task()
    assert set(learner.memory.ids.tolist()) <= set(scored.tolist())


def test_layers_that_selection_looks_at_may_be_frozen_on_the_way(model, sgd, batch):
    learner = UniformOCS(model, sgd(model), ReplayMemory(9), k=4, parameters=["hidden", "head"])
    learner.observe(*batch())
    model.hidden.requires_grad_(False)
    assert learner.observe(*batch(seed=1)).loss.isfinite()


@pytest.mark.parametrize("warm_start", [0, 100])
def test_a_sample_that_is_not_finite_is_neither_trained_on_nor_remembered(
    model, sgd, batch, generator, warm_start
):
    learner = UniformOCS(
        model, sgd(model), ReplayMemory(9), k=4, warm_start=warm_start, candidates=100, generator=generator
    )
    for seed in range(10):
        x, y = batch(6, seed=seed)
        x[2] = torch.nan
        assert 2 not in learner.observe(x, y).picked
    learner.start_sweep()
    x, y = batch(3)
    x[2] = torch.nan
    assert learner.observe(x, y, ids=torch.arange(3)).picked[2] == -1
    learner.end_task()
    assert set(learner.memory.ids.tolist()) == {0, 1}
    assert all(parameter.isfinite().all() for parameter in model.parameters())
