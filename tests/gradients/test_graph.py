import torch
import torch.nn.functional as F
from torch import nn

from corestream.gradients.graph import Graph


def uses(make, layer):
    return Graph(make(torch.randn(4, 3, 5), layer).sum()).uses(layer.parameters())


def test_uses_of_a_parameter_are_counted():
    layer = nn.Linear(5, 5)
    assert uses(lambda x, f: f(x), layer) == [1, 1]
    assert uses(lambda x, f: f(f(x)), layer) == [2, 2]
    assert uses(lambda x, f: f(x) + F.linear(x, f.weight), layer) == [2, 1]
    assert uses(lambda x, f: f(x) * f.bias.norm(), layer) == [1, 2]
    assert uses(lambda x, f: x.detach().requires_grad_(), layer) == [0, 0]


def test_views_and_casts_only_hand_a_parameter_on():
    layer = nn.Linear(5, 5)
    assert uses(lambda x, f: x @ f.weight.t() + x @ f.weight.view(5, 5).unsqueeze(0).squeeze(0), layer) == [
        2,
        0,
    ]
    assert uses(lambda x, f: x.double() @ f.weight.double(), layer) == [1, 0]
    assert uses(lambda x, f: sum((x @ part.T).sum() for part in f.weight.chunk(5)), layer) == [5, 0]


def test_the_weight_cached_by_autocast_is_used_as_often_as_it_is_taken_in():
    layer = nn.Linear(5, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert uses(lambda x, f: f(x) + f(2 * x), layer) == [2, 2]


def test_a_thrown_away_use_is_no_use():
    layer = nn.Linear(5, 5)

    def forward(x, f):
        f(x)
        return f(x) + f(x).detach()

    assert uses(forward, layer) == [1, 1]


def test_the_deepest_nodes_are_those_with_none_behind_them():
    x = torch.randn(3, requires_grad=True)
    a = x * 2
    b, c = a + 1, x * 3
    graph = Graph((b * c).sum())
    nodes = {"a": a.grad_fn, "b": b.grad_fn, "c": c.grad_fn}
    assert graph.deepest(nodes.values()) == {nodes["a"], nodes["c"]}
