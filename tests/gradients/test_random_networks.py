"""Networks drawn at random, held against the oracle."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

SETTINGS = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def image_networks(draw):
    """Convolutions, norms, activations in place or not, dropout, shared layers and frozen parts."""
    channels, size = draw(st.integers(1, 4)), draw(st.integers(5, 8))
    first, layers = (
        (channels, size),
        [nn.Conv2d(channels, channels, 1)],
    )  # the input itself is not changed in place
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["conv", "conv", "norm", "act", "dropout", "again"]))
        if kind == "conv":
            groups = draw(st.sampled_from([g for g in (1, 2) if channels % g == 0]))
            out = groups * draw(st.integers(1, 3))
            kernel, stride, padding = (
                draw(st.integers(1, 3)),
                draw(st.integers(1, 2)),
                draw(st.integers(0, 2)),
            )
            size = (size + 2 * padding - kernel) // stride + 1
            layers.append(
                nn.Conv2d(channels, out, kernel, stride, padding, groups=groups, bias=draw(st.booleans()))
            )
            channels = out
        elif kind == "norm":
            layers.append(draw(st.sampled_from([nn.BatchNorm2d(channels), nn.GroupNorm(1, channels)])))
        elif kind == "act":
            layers.append(
                draw(st.sampled_from([nn.ELU(inplace=True), nn.LeakyReLU(inplace=False), nn.Tanh()]))
            )
        elif kind == "dropout":
            layers.append(nn.Dropout(0.3))
        else:
            layers.append(nn.Conv2d(channels, channels, 3, padding=1))
            layers += [nn.Tanh(), layers[-1]]
    model = nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(4 * channels, 3)
    )
    return model.train(draw(st.booleans())), first


@st.composite
def sequence_networks(draw):
    """Linear layers, norms and self-attention over positions."""
    width, layers = 4 * draw(st.integers(1, 2)), []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["linear", "norm", "attention", "act"]))
        if kind == "linear":
            layers.append(nn.Linear(width, width, bias=draw(st.booleans())))
        elif kind == "norm":
            layers.append(draw(st.sampled_from([nn.LayerNorm(width), nn.RMSNorm(width)])))
        elif kind == "attention":
            layers.append(nn.TransformerEncoderLayer(width, 2, 6, 0.1, batch_first=True))
        else:
            layers.append(nn.GELU())
    model = nn.Sequential(*layers, nn.Tanh(), nn.Linear(width, 3))
    return model.train(draw(st.booleans())), width, draw(st.integers(1, 6))


def freeze_some(draw_bits, model):
    parameters = list(model.parameters())
    for bit, parameter in zip(draw_bits, parameters, strict=False):
        parameter.requires_grad_(bit)
    parameters[-1].requires_grad_(True)


@SETTINGS
@given(
    network=image_networks(), count=st.integers(1, 5), bits=st.lists(st.booleans(), min_size=4, max_size=4)
)
def test_random_image_networks_are_exact(check, network, count, bits):
    model, (channels, size) = network
    freeze_some(bits, model)
    torch.manual_seed(count)
    if count == 1 and any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        model.eval()  # one sample has no batch statistics to speak of where its image has shrunk to a pixel
    x = torch.randn(count, channels, size, size)
    check(model, (x, torch.arange(count) % 3), dtypes=(torch.float64,))


@SETTINGS
@given(
    network=sequence_networks(), count=st.integers(1, 5), bits=st.lists(st.booleans(), min_size=4, max_size=4)
)
def test_random_sequence_networks_are_exact(check, network, count, bits):
    model, width, length = network
    freeze_some(bits, model)
    torch.manual_seed(count)

    def loss_fn(outputs, targets):
        return nn.functional.cross_entropy(outputs.mean(1), targets, reduction="none")

    x = torch.randn(count, length, width)
    check(model, (x, torch.arange(count) % 3), loss_fn, dtypes=(torch.float64,))
