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
