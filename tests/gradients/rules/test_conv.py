import pytest
import torch
from torch import nn

SPACE = {1: (9,), 2: (7, 6), 3: (5, 4, 4)}
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def network(layer, dims, out):
    """The layer between a convolution before it and a sum over space that tells positions apart."""
    before = CONVS[dims](2, layer.in_channels, 1)
    return nn.Sequential(before, nn.Tanh(), layer, nn.Tanh(), Weighted(), nn.Linear(out, 3))


class Weighted(nn.Module):
    def forward(self, x):
        flat = x.flatten(2)
        return flat @ torch.linspace(-1, 2, flat.shape[2], dtype=x.dtype) / flat.shape[2] ** 0.5


OPTIONS = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "stride and padding": {"stride": 3, "padding": 2},
    "dilation": {"dilation": 2},
    "groups": {"groups": 2},
    "depthwise": {"groups": 4},
    "all": {"stride": 2, "padding": 1, "dilation": 2, "groups": 2},
    "same": {"padding": "same"},
    "same with an even kernel": {"padding": "same", "kernel_size": 2},
    "same and dilated": {"padding": "same", "dilation": 2},
    "valid": {"padding": "valid"},
    "pointwise": {"kernel_size": 1},
    "without bias": {"bias": False},
    "reflect": {"padding": 1, "padding_mode": "reflect"},
    "replicate": {"padding": 2, "padding_mode": "replicate"},
    "circular": {"padding": 1, "padding_mode": "circular"},
    "circular and same": {"padding": "same", "padding_mode": "circular", "kernel_size": 2},
}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_convolution_is_exact(check, images, dims, options):
    options = {"kernel_size": 3, **options}
    if dims == 3 and "dilation" in options and "padding" not in options:
        options["padding"] = 1  # the third axis is short
    layer = CONVS[dims](4, 6 if options.get("groups") != 4 else 8, **options)
    model = network(layer, dims, layer.out_channels)
    check(
        model,
        images(3, 2, *SPACE[dims]),
        dtypes=(torch.float32,) if dims != 2 else (torch.float32, torch.float64),
    )


def test_a_kernel_may_differ_by_axis(check, images):
    layer = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 0), dilation=(1, 3))
    check(network(layer, 2, 6), images(3, 2, 7, 6))


TRANSPOSED_OPTIONS = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "output padding": {"stride": 2, "output_padding": 1},
    "stride, padding and output padding": {"stride": 3, "padding": 2, "output_padding": 2},
    "dilation": {"dilation": 2},
    "groups": {"groups": 2},
    "all": {"stride": 2, "padding": 1, "output_padding": 1, "dilation": 2, "groups": 2},
    "output padding that no step reaches": {"dilation": 3, "output_padding": 2, "padding": 1},
    "without bias": {"bias": False},
}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("options", TRANSPOSED_OPTIONS.values(), ids=TRANSPOSED_OPTIONS.keys())
def test_a_transposed_convolution_is_exact(check, images, dims, options):
    layer = TRANSPOSED[dims](4, 6, 3, **options)
    check(network(layer, dims, 6), images(3, 2, *SPACE[dims]), dtypes=(torch.float32,))


def test_a_transposed_convolution_with_a_given_output_size_is_exact(check, images):
    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.weigh, self.head = (
                nn.ConvTranspose2d(2, 4, 3, stride=2),
                Weighted(),
                nn.Linear(4, 3),
            )

        def forward(self, x):
            return self.head(self.weigh(torch.tanh(self.up(x, output_size=(16, 13)))))

    check(Sized(), images(3, 2, 7, 6))


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose2d(4, 6, 3, groups=2)])
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_frozen_part_of_a_convolution_is_left_out(check, images, layer, part):
    model = network(layer, 2, 6)
    model[2].requires_grad_(True)
    getattr(model[2], part).requires_grad_(False)
    check(model, images(3, 2, 7, 6), dtypes=(torch.float32,))


def test_convolutions_take_their_rule(covered, images):
    model = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Tanh(), nn.ConvTranspose2d(4, 3, 2), Weighted())
    assert covered(model, images(3, 2, 6, 6)) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_the_patches_are_unfolded_a_few_samples_at_a_time(check, images):
    model = network(nn.Conv2d(4, 6, 3, padding=1, groups=2), 2, 6)
    check(model, images(5, 2, 7, 6), max_bytes=1)


@pytest.mark.parametrize("channels", [2, 16])
def test_large_and_small_images_are_exact_by_tables_and_by_rows(check, images, channels):
    model = nn.Sequential(nn.Conv2d(channels, channels, 3), nn.Tanh(), nn.Conv2d(channels, 3, 3), Weighted())
    check(model, images(3, channels, 6, 6))
    check(model, images(3, channels, 14, 14), dtypes=(torch.float32,))


def test_bfloat16_is_within_five_hundredths(check, images):
    model = network(nn.Conv2d(4, 6, 3, padding=1), 2, 6)
    check(model, images(4, 2, 7, 6), dtypes=(torch.bfloat16,))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_kernel_as_large_as_its_input_is_exact(check, images, dims):
    layer = CONVS[dims](2, 3, SPACE[dims])
    check(nn.Sequential(layer, nn.Flatten()), images(3, 2, *SPACE[dims]))
