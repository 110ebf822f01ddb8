import pytest
import torch
from torch import nn

from corestream.gradients.backward import Backward, Place
from corestream.gradients.graph import Graph


@pytest.fixture
def forward():
    """Layers one behind the other and side by side, with the outputs of each."""
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    x = torch.randn(5, 4)
    first = layers[0](x)
    second, beside = layers[1](torch.tanh(first)), layers[2](first)
    last = layers[3](second.relu() + beside)
    return last.square().sum(1), [first, second, beside, last], layers


def test_every_edge_gets_the_gradient_that_autograd_gives_it(forward):
    losses, outputs, _ = forward
    weights = torch.rand(5)
    found = {}
    backward = Backward(Graph(losses), losses, [Place.of(output) for output in outputs])
    backward.run(weights, lambda place, gradient: found.setdefault(place, gradient.clone()), keep_graph=True)
    expected = torch.autograd.grad(losses, outputs, weights, retain_graph=True)
    assert sorted(found) == [0, 1, 2, 3]
    for place, gradient in enumerate(expected):
        torch.testing.assert_close(found[place], gradient)


def test_no_parameter_gets_a_gradient(forward):
    losses, outputs, layers = forward
    fired = []
    for parameter in layers.parameters():
        parameter.register_hook(lambda gradient: fired.append(1))
    Backward(Graph(losses), losses, [Place.of(output) for output in outputs]).run(
        torch.ones(5), lambda place, gradient: None, keep_graph=False
    )
    assert not fired
    assert all(parameter.grad is None for parameter in layers.parameters())


def test_nothing_is_left_on_the_graph_not_even_after_an_error(forward):
    losses, outputs, _ = forward
    backward = Backward(Graph(losses), losses, [Place.of(output) for output in outputs])

    class Trouble(Exception):
        pass

    def fail(place, gradient):
        raise Trouble

    with pytest.raises(Trouble):
        backward.run(torch.ones(5), fail, keep_graph=True)
    seen = []
    backward.run(torch.ones(5), lambda place, gradient: seen.append(place), keep_graph=True)
    losses.sum().backward()
    assert sorted(seen) == [0, 1, 2, 3]


def test_one_output_may_stand_at_several_places(forward):
    losses, outputs, _ = forward
    edges = [Place.of(outputs[i]) for i in (0, 0, 3, 3)]
    seen = []
    Backward(Graph(losses), losses, edges).run(
        torch.ones(5), lambda place, gradient: seen.append(place), keep_graph=False
    )
    assert sorted(seen) == [0, 1, 2, 3]


def test_with_no_edges_there_is_nothing_to_do(forward):
    losses, _, _ = forward
    Backward(Graph(losses), losses, []).run(torch.ones(5), lambda place, gradient: 1 / 0, keep_graph=False)
