import copy

import pytest
import torch
from torch import nn

LAYERS = {
    "layer norm": (nn.LayerNorm(6), (5, 6)),
    "layer norm over two dimensions": (nn.LayerNorm((5, 6)), (5, 6)),
    "layer norm over all": (nn.LayerNorm((2, 5, 6)), (2, 5, 6)),
    "layer norm on vectors": (nn.LayerNorm(6), (6,)),
    "layer norm without bias": (nn.LayerNorm(6, bias=False), (5, 6)),
    "layer norm without parameters": (nn.LayerNorm(6, elementwise_affine=False), (5, 6)),
    "rms norm": (nn.RMSNorm(6), (5, 6)),
    "rms norm over two dimensions": (nn.RMSNorm((5, 6), eps=1e-3), (5, 6)),
    "group norm": (nn.GroupNorm(2, 6), (6, 4, 3)),
    "group norm on vectors": (nn.GroupNorm(1, 6), (6,)),
    "group norm over all channels": (nn.GroupNorm(1, 6), (6, 7)),
    "instance norm 1d": (nn.InstanceNorm1d(6, affine=True), (6, 5)),
    "instance norm 2d": (nn.InstanceNorm2d(6, affine=True), (6, 4, 3)),
    "instance norm 3d": (nn.InstanceNorm3d(6, affine=True), (6, 3, 2, 2)),
    "instance norm with running statistics": (
        nn.InstanceNorm2d(6, affine=True, track_running_stats=True),
        (6, 4, 3),
    ),
    "instance norm without parameters": (nn.InstanceNorm2d(6), (6, 4, 3)),
}


@pytest.fixture(params=LAYERS.values(), ids=LAYERS.keys())
def case(request):
    """A network around one normalisation whose scale and shift are not the initial ones."""
    layer, shape = copy.deepcopy(request.param)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, 1.0, 0.5)
    if getattr(layer, "running_mean", None) is not None:
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
    width = torch.Size(shape).numel()
    start = nn.Sequential(nn.Flatten(), nn.Linear(width, width), nn.Unflatten(1, shape))
    return nn.Sequential(start, layer, nn.Tanh(), nn.Flatten(), nn.Linear(width, 3)), shape


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_normalisation_is_exact(check, images, case, training):
    model, shape = case
    check(model.train(training), images(4, *shape))


def test_a_frozen_part_of_a_normalisation_is_left_out(check, images, case):
    model, shape = case
    for name, parameter in model[1].named_parameters():
        parameter.requires_grad_(False)
        grads = check(model, images(4, *shape), dtypes=(torch.float32,))
        assert f"1.{name}" not in grads.combine(torch.ones(4))
        parameter.requires_grad_(True)


def test_a_normalisation_takes_its_rule(covered, images, case):
    model, shape = case
    assert {f"1.{name}" for name, _ in model[1].named_parameters()} <= covered(model, images(4, *shape))


def test_bfloat16_is_within_five_hundredths(check, images, case):
    model, shape = case
    check(model, images(4, *shape), dtypes=(torch.bfloat16,))


def test_running_statistics_are_afterwards_what_they_were(images):
    from corestream import per_sample_gradients

    model = nn.Sequential(
        nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.Flatten(), nn.Linear(48, 3)
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    per_sample_gradients(model, None, images(4, 3, 4, 4))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("training", [True, False])
def test_instance_norm_takes_a_table_of_as_many_rows_as_channels_for_one_sample(check, training):
    norm = nn.InstanceNorm1d(6, affine=True, track_running_stats=True)
    nn.init.normal_(norm.weight)
    norm.running_mean.normal_()
    model = nn.Sequential(nn.Linear(5, 6), norm, nn.Tanh(), nn.Linear(6, 3)).train(training)
    check(model, (torch.randn(6, 5), torch.arange(6) % 3), dtypes=(torch.float64,))


@pytest.mark.parametrize("channels", [4, 6])
def test_instance_norm_of_one_picture_without_a_batch(check, channels):
    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, channels, 3), nn.InstanceNorm2d(channels, affine=True)
            self.head = nn.Linear(36 * channels, 3)

        def forward(self, x):
            return self.head(torch.stack([self.norm(self.conv(one)) for one in x]).flatten(1))

    check(Squeezed(), (torch.randn(1, 3, 8, 8), torch.tensor([1])), dtypes=(torch.float64,))
