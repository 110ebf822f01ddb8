"""A small network and a small classification problem for the learners' tests."""

import pytest
import torch
from torch import nn


class Tiny(nn.Module):
    """Two layers, with an embedding of its own."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def embed(self, x):
        return torch.tanh(self.hidden(x))

    def forward(self, x, task=None):
        return self.head(self.embed(x))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Tiny()


@pytest.fixture
def sgd():
    return lambda model, lr=0.1: torch.optim.SGD(model.parameters(), lr=lr)


@pytest.fixture
def batch():
    """`batch(n, seed)` draws n samples of three overlapping classes."""

    def draw(n=12, seed=0):
        generator = torch.Generator().manual_seed(seed)
        y = torch.arange(n) % 3
        x = torch.randn(n, 4, generator=generator) + 2 * nn.functional.one_hot(y, 4)
        return x, y

    return draw


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
