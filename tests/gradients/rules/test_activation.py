import pytest
import torch
from torch import nn


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 4, 4), (6, 2, 3, 2)], ids=str)
@pytest.mark.parametrize("weights", [1, 6])
def test_an_activation_that_learns_is_exact(check, covered, images, shape, weights):
    x, y = images(4, *shape)
    model = nn.Sequential(nn.PReLU(weights), nn.Flatten(), nn.LazyLinear(3))
    model(x)
    with torch.no_grad():
        model[0].weight.uniform_(-1, 1)
    check(model, (x, y))
    assert "0.weight" in covered(model, (x, y))


def test_a_slope_without_a_dimension_is_exact(check, images):
    model = nn.Sequential(nn.PReLU(), nn.Linear(6, 3))
    model[0].weight = nn.Parameter(torch.tensor(0.3))
    check(model, images(4, 6))


@pytest.mark.parametrize("length", [4, 5])
def test_one_slope_for_all_may_stand_where_samples_come_second(check, images, length):
    class SequenceFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.slope, self.head = nn.PReLU(), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.slope(x.transpose(0, 1)).square().sum(0))

    assert not check(SequenceFirst(), images(4, length, 6)).general
