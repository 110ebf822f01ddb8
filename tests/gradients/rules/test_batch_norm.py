import copy

import pytest
import torch
from torch import nn

from corestream import per_sample_gradients
from corestream.gradients import is_batch_coupled

SHAPES = {"1d": (nn.BatchNorm1d, (6,)), "1d in time": (nn.BatchNorm1d, (6, 5)), "2d": (nn.BatchNorm2d, (6, 4, 3)),
          "3d": (nn.BatchNorm3d, (6, 3, 2, 2))}  # fmt: skip


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def kind(request):
    return request.param


@pytest.fixture
def network(kind):
    make, shape = kind

    def build(**options):
        layer = make(6, **options)
        for parameter in layer.parameters():
            nn.init.normal_(parameter, 1.0, 0.5)
        if layer.running_mean is not None:
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
        width = torch.Size(shape).numel()
        start = nn.Sequential(nn.Flatten(), nn.Linear(width, width), nn.Unflatten(1, shape))
        return nn.Sequential(start, layer, nn.Tanh(), nn.Flatten(), nn.Linear(width, 3))

    return build


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "options",
    [{}, {"track_running_stats": False}, {"affine": False}, {"momentum": None}, {"eps": 0.1}],
    ids=str,
)
def test_gradients_have_the_batch_statistics_as_constants(check, images, network, kind, training, options):
    check(network(**options).train(training), images(5, *kind[1]))


def test_bfloat16_is_within_five_hundredths(check, images, network, kind):
    check(network(), images(5, *kind[1]), dtypes=(torch.bfloat16,))
    check(network().eval(), images(5, *kind[1]), dtypes=(torch.bfloat16,))


def test_a_bias_alone_may_learn(check, images, network, kind):
    model = network()
    model[1].weight.requires_grad_(False)
    check(model, images(5, *kind[1]))


def test_the_layer_takes_its_rule(covered, images, network, kind):
    assert {"1.weight", "1.bias", "0.1.weight"} <= covered(network(), images(5, *kind[1]))


def test_the_gradient_of_some_samples_is_the_weighted_sum_of_theirs(images, network, kind):
    """What the definition is for: with constants for statistics, samples do not feel each other."""
    model, (x, y) = network().double(), images(5, *kind[1])
    grads = per_sample_gradients(model, None, (x.double(), y))
    weights = torch.tensor([1.0, 0.0, 2.0, 0.0, 1.0], dtype=torch.float64)
    whole = grads.combine(weights)
    some = grads[torch.tensor([0, 2, 4])].combine(torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64))
    for name, value in whole.items():
        torch.testing.assert_close(value, some[name])


def test_it_is_not_the_training_gradient(images, network, kind):
    model, (x, y) = network(), images(5, *kind[1])
    grads = per_sample_gradients(model, None, (x, y)).combine(torch.ones(5))
    nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    assert not torch.allclose(grads["0.1.weight"], model[0][1].weight.grad, rtol=1e-2)


def test_running_statistics_are_afterwards_what_they_were(images, network, kind):
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    per_sample_gradients(model, None, images(5, *kind[1]))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert int(model[1].num_batches_tracked) == 0


def test_a_frozen_layer_still_has_constant_statistics(check, images, network, kind):
    model = network()
    model[1].requires_grad_(False)
    check(model, images(5, *kind[1]))


class Renamed(nn.BatchNorm2d):
    def __init__(self, width):
        super().__init__(width, eps=0.01)


class Activated(nn.BatchNorm2d):
    """With what follows it, as in some networks."""

    def __init__(self, width):
        super().__init__(width, eps=0.01)
        self.drop = nn.Dropout(0.0)

    def forward(self, image):
        kept = (self.running_mean, self.running_var) if not self.training else (None, None)
        found = nn.functional.batch_norm(
            image, *kept, self.weight, self.bias, self.training, 0.1, eps=self.eps
        )
        return self.drop(found) * (1 if self.training else 2)


class Halves(nn.BatchNorm2d):
    """Each half of a batch is normalised by itself, after an activation."""

    def forward(self, x):
        return torch.cat([super(Halves, self).forward(torch.relu(part)) for part in x.chunk(2)])


def test_a_layer_with_a_forward_of_its_own_computes_what_it_does(images):
    x, y = images(6, 3, 5, 5)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), Halves(4), nn.Flatten(), nn.Linear(36, 3)).double()
    found = per_sample_gradients(model, None, (x.double(), y))
    losses = nn.functional.cross_entropy(copy.deepcopy(model)(x.double()), y, reduction="none")
    torch.testing.assert_close(found.losses, losses.detach())
    half = per_sample_gradients(copy.deepcopy(model), None, (x[:3].double(), y[:3]))
    assert not torch.allclose(half.losses, losses[:3])  # of other halves
    assert not found.coupled


@pytest.mark.parametrize("track", [True, False], ids=["running statistics", "none"])
@pytest.mark.parametrize("kind", [Renamed, Activated])
def test_a_layer_made_from_it_has_constant_statistics_as_well(images, kind, track):
    x, y = images(6, 3, 5, 5)
    found = []
    for norm in (lambda width: nn.BatchNorm2d(width, eps=0.01), kind):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), norm(4), nn.Flatten(), nn.Linear(36, 3)).double()
        model[1].weight.data.uniform_(0.5, 2)
        if not track:
            model[1].register_buffer("running_mean", None)
            model[1].register_buffer("running_var", None)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        found.append(per_sample_gradients(model, None, (x.double(), y)))
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert model[1].training
    plain, own = found
    torch.testing.assert_close(own.gram(), plain.gram())
    assert not own.coupled
    assert not own.general


def test_a_model_is_coupled_while_it_normalises_by_its_batch():
    assert is_batch_coupled(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    assert not is_batch_coupled(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval())
    assert is_batch_coupled(nn.BatchNorm1d(3, track_running_stats=False).eval())
    assert not is_batch_coupled(nn.Sequential(nn.GroupNorm(1, 3), nn.InstanceNorm1d(3)))


def test_the_rest_of_the_model_may_train_while_the_layer_does_not(check, images, network, kind):
    model = network()
    model[1].eval()
    check(model, images(5, *kind[1]))


def test_a_forward_put_on_the_layer_itself_is_frozen_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    batch = torch.randn(8, 5), torch.arange(8) % 3
    usual = per_sample_gradients(model, None, batch).norms()
    forward = model[1].forward
    model[1].forward = lambda x: forward(x)
    torch.testing.assert_close(per_sample_gradients(model, None, batch).norms(), usual)
    assert int(model[1].num_batches_tracked) == 0
