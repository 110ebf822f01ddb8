import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from corestream import NonFiniteError, ReplayMemory
from corestream.learners import FeatOCS, InputOCS


def expected_picks(vectors, k, reference=None, tau=0.0):
    mean = vectors.mean(0, keepdim=True)
    similarity = cosine_similarity(vectors, mean)
    cosines = cosine_similarity(vectors[:, None], vectors[None], dim=2)
    diversity = -(cosines.sum(1) - cosines.diagonal()) / (len(vectors) - 1)
    affinity = 0.0 if reference is None else cosine_similarity(vectors, reference.mean(0, keepdim=True))
    return (similarity + diversity + tau * affinity).topk(k).indices.tolist()


@pytest.mark.parametrize("kind", [InputOCS, FeatOCS])
def test_the_criteria_are_those_of_the_vectors(model, sgd, batch, kind):
    learner = kind(model, sgd(model, 0.0), ReplayMemory(9), k=4, tau=2.0, warm_start=0)

    def vectors(x):
        return x if kind is InputOCS else model.embed(x).detach()

    x, y = batch(15)
    assert learner.observe(x, y).picked.tolist() == expected_picks(vectors(x), 4)
    learner.end_task()
    x, y = batch(15, seed=1)
    reference = vectors(learner.memory.inputs)
    step = learner.observe(x, y)
    assert step.picked.tolist() == expected_picks(vectors(x), 4, reference, tau=2.0)
    assert step.scores.affinity.abs().max() > 0


def test_scoring_leaves_running_statistics_to_the_update(batch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    FeatOCS(model, torch.optim.SGD(model.parameters(), lr=0.1), ReplayMemory(6), k=4).observe(*batch())
    assert int(model[1].num_batches_tracked) == 1


@pytest.mark.parametrize("warm_start", [0, 100])
def test_inputs_too_large_to_compare_are_an_error_and_no_step(model, sgd, batch, warm_start):
    learner = InputOCS(model, sgd(model), ReplayMemory(9), k=4, warm_start=warm_start)
    x, y = batch(12)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(NonFiniteError):
        learner.observe(1e20 * x, y)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert learner.candidates.kept() is None
