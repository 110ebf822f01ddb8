"""The coreset learners hand the right quantity to the right selector."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from corestream import OCS, NonFiniteError, ReplayMemory
from corestream.learners import Bilevel, GradMatching, ICaRL, KMeansEmbedding, KMeansFeatures
from corestream.memory import Samples
from corestream.selection.bilevel import bilevel
from corestream.selection.grad_matching import grad_matching
from corestream.selection.herding import herding
from corestream.selection.kernels import ntk, rbf
from corestream.selection.kmeans import kmeans_plus_plus


def fresh():
    return torch.Generator().manual_seed(3)


def gradients(model, x, y, parameters):
    rows = []
    for n in range(len(y)):
        grads = torch.autograd.grad(cross_entropy(model(x[n : n + 1]), y[n : n + 1]), list(parameters))
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows).double()


def test_icarl_remembers_the_herding_of_each_class(model, sgd, batch):
    learner = ICaRL(model, sgd(model, 0.0), ReplayMemory(6))
    x, y = batch(30)
    learner.observe(x, y, ids=torch.arange(30))
    learner.end_task()
    kept = set(learner.memory.ids.tolist())
    for label in range(3):
        # the reservoir has an order of its own, and herding does not depend on it
        own = (y == label).nonzero()[:, 0]
        assert set(own[herding(model.embed(x[own]).detach(), 2)].tolist()) <= kept
    assert len(kept) == 6


def test_kmeans_features_seeds_on_inputs_and_embedding_on_embeddings(model, sgd, batch):
    x, y = batch(30)
    samples = Samples.of(x, y)
    by_input = KMeansFeatures(model, sgd(model), ReplayMemory(6), generator=fresh()).choose(samples, 5)
    assert torch.equal(by_input, kmeans_plus_plus(x, 5, generator=fresh()))
    by_embedding = KMeansEmbedding(model, sgd(model), ReplayMemory(6), generator=fresh()).choose(samples, 5)
    assert torch.equal(by_embedding, kmeans_plus_plus(model.embed(x).detach(), 5, generator=fresh()))


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("last_layer", [False, True])
def test_grad_matching_matches_the_gradients_of_the_model_or_of_its_last_layer(
    model, sgd, batch, last_layer, unit
):
    x, y = batch(15)
    learner = GradMatching(model, sgd(model), ReplayMemory(6), last_layer=last_layer, unit=unit)
    rows = gradients(model, x, y, list((model.head if last_layer else model).parameters()))
    rows = torch.nn.functional.normalize(rows.double(), dim=1) if unit else rows
    assert torch.equal(learner.choose(Samples.of(x, y), 6), grad_matching(rows @ rows.T, 6))


class HeadFirst(nn.Module):
    """Its output layer is registered before the others, and called after them."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(8, 3), nn.Linear(4, 8)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def test_grad_matchings_last_layer_is_the_one_that_is_called_last(sgd, batch):
    torch.manual_seed(0)
    model, (x, y) = HeadFirst(), batch(15)
    rows, others = (gradients(model, x, y, list(part.parameters())) for part in (model.head, model.body))
    expected = grad_matching(rows @ rows.T, 6)
    assert not torch.equal(expected, grad_matching(others @ others.T, 6))
    learner = GradMatching(model, sgd(model), ReplayMemory(6), last_layer=True)
    assert torch.equal(learner.choose(Samples.of(x, y), 6), expected)


def test_a_gradient_of_zero_has_no_length_to_be_brought_to(model, sgd, batch):
    x, y = batch(6)
    learner = GradMatching(
        model, sgd(model), ReplayMemory(6), unit=True, loss_fn=lambda out, y: out.sum(1) * (y > 0)
    )
    assert sorted(learner.choose(Samples.of(x, y), 6).tolist()) == list(range(6))


def test_grad_matching_by_the_last_layer_needs_one(sgd):
    model = nn.Conv2d(1, 1, 1)
    with pytest.raises(ValueError, match="last_layer=True: the model has no Linear layer"):
        GradMatching(model, sgd(model), ReplayMemory(6), last_layer=True)


def test_grad_matching_leaves_out_what_is_not_finite(model, sgd, batch):
    x, y = batch(6)
    x[2] = torch.inf
    picked = GradMatching(model, sgd(model), ReplayMemory(6)).choose(Samples.of(x, y), 6)
    assert sorted(picked.tolist()) == [-1, 0, 1, 3, 4, 5]


def test_bilevel_chooses_on_the_networks_kernel_or_on_its_embeddings(model, sgd, batch):
    x, y = batch(18)
    kernels = {"ntk": ntk(model, x, [0, 1, 2]), "rbf": rbf(model.embed(x).detach())}
    for name, kernel in kernels.items():
        learner = Bilevel(model, sgd(model), ReplayMemory(6), kernel=name, generator=fresh())
        expected = bilevel(kernel, y, 4, ridge=0.01, generator=fresh()).picked
        assert torch.equal(learner.choose(Samples.of(x, y), 4), expected)


def test_bilevels_inner_loss_may_be_a_mean(model, sgd, batch):
    x, y = batch(18)
    learner = Bilevel(model, sgd(model), ReplayMemory(6), ridge=0.03, inner="mean", generator=fresh())
    expected = bilevel(ntk(model, x, [0, 1, 2]), y, 4, ridge=0.03, inner="mean", generator=fresh()).picked
    assert torch.equal(learner.choose(Samples.of(x, y), 4), expected)
    with pytest.raises(ValueError, match="inner must be 'sum' or 'mean'"):
        Bilevel(model, sgd(model), ReplayMemory(6), inner="max")


def test_an_unknown_kernel_is_refused(model, sgd):
    with pytest.raises(ValueError, match="kernel must be 'ntk' or 'rbf'"):
        Bilevel(model, sgd(model), ReplayMemory(6), kernel="linear")


def test_bilevel_asks_for_classes_before_it_learns(model, sgd, batch):
    learner = Bilevel(
        model, sgd(model), ReplayMemory(6, balance=None), loss_fn=lambda out, y: (out[:, 0] - y) ** 2
    )
    with pytest.raises(ValueError, match="Bilevel's choice needs classes"):
        learner.observe(batch()[0], torch.randn(12))


@pytest.mark.parametrize("how", [Bilevel, lambda *args: OCS(*args, fill="bilevel", warm_start=0)])
def test_bilevel_takes_two_classes_as_true_and_false(how, sgd):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    learner = how(model, sgd(model), ReplayMemory(4))
    learner.observe(torch.randn(9, 4), torch.arange(9) % 2 == 0)
    learner.end_task()
    assert learner.memory.targets.tolist().count(True) == 2


def test_icarl_herds_in_the_memorys_own_groups(model, sgd, batch):
    learner = ICaRL(
        model, sgd(model), ReplayMemory(6, balance=None), loss_fn=lambda out, y: (out - y).square().mean(1)
    )
    x, labels = batch(12)
    picked = learner.choose(Samples.of(x, nn.functional.one_hot(labels, 3).float()), 5)
    assert torch.equal(picked, herding(model.embed(x).detach(), 5))


def test_a_batch_in_which_bilevel_finds_nothing_finite_is_told(model, sgd, batch):
    learner = Bilevel(model, sgd(model), ReplayMemory(6), k=4, adapt=True)
    x, y = batch()
    with pytest.raises(NonFiniteError, match="no sample with a finite loss"):
        learner.observe(torch.full_like(x, torch.nan), y)
    learner.observe(x, y)
