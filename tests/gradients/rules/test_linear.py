import pytest
import torch
from torch import nn


class OnPositions(nn.Module):
    """Two linear layers over whatever leading dimensions the input has."""

    def __init__(self, width=5, hidden=7, bias=True):
        super().__init__()
        self.first, self.second = nn.Linear(width, hidden, bias=bias), nn.Linear(hidden, 3, bias=bias)

    def forward(self, x):
        y = self.second(torch.tanh(self.first(x)))
        return y.flatten(1, -2).mean(1) if y.dim() > 2 else y


@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_is_exact_over_any_leading_dimensions(check, images, leading, bias):
    check(OnPositions(bias=bias), images(4, *leading, 5))


@pytest.mark.parametrize("hidden", [2, 40])
@pytest.mark.parametrize("positions", [2, 30])
def test_both_forms_of_the_gram_matrix_are_exact(check, images, hidden, positions):
    """Few positions on wide layers go by tables of inner products, many on narrow ones by rows."""
    check(OnPositions(width=hidden, hidden=hidden), images(4, positions, hidden))


@pytest.mark.parametrize("part", ["first.weight", "first.bias", "second.weight", "second.bias"])
@pytest.mark.parametrize("leading", [(), (3,)])
def test_a_frozen_part_of_a_linear_layer_is_left_out(check, images, part, leading):
    model = OnPositions()
    model.get_parameter(part).requires_grad_(False)
    grads = check(model, images(4, *leading, 5))
    assert part not in grads.combine(torch.ones(4))


def test_only_the_bias_of_a_layer_may_learn(check, images):
    model = OnPositions()
    model.first.weight.requires_grad_(False)
    model.second.requires_grad_(False)
    check(model, images(4, 3, 5))


def test_linear_layers_take_their_rule(covered, images):
    model = OnPositions()
    assert covered(model, images(4, 3, 5)) == {"first.weight", "first.bias", "second.weight", "second.bias"}


def test_bfloat16_is_within_five_hundredths(check, images):
    check(OnPositions(), images(6, 4, 5), dtypes=(torch.bfloat16,))


@pytest.mark.parametrize("leading", [(), (6,)])
def test_one_sample_alone_is_exact(check, images, leading):
    check(OnPositions(), images(1, *leading, 5))
