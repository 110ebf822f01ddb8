import pytest
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


@pytest.mark.parametrize(
    ("move", "moves"),
    [
        (lambda h: h[torch.tensor([2, 0, 1, 3])], True),
        (lambda h: h[torch.arange(4)], False),
        (lambda h: h[torch.arange(4), torch.tensor([2, 1, 0, 2])], False),
        (lambda h: h[h.sum((1, 2)) > -torch.inf], False),
        (lambda h: h[:, torch.tensor([1, 0, 2])], False),
        (lambda h: h.transpose(0, 1)[:, torch.tensor([1, 0, 2, 3])], True),
        (lambda h: h.flatten(0, 1)[torch.arange(11, -1, -1)], True),
        (lambda h: h.index_select(-3, torch.tensor([2, 0, 1, 3])), True),
        (lambda h: h.index_select(-1, torch.tensor([2, 0, 1])), False),
        (lambda h: h.gather(-1, torch.zeros(4, 3, 1, dtype=torch.long)), False),
        (lambda h: h.gather(0, torch.zeros(1, 3, 5, dtype=torch.long)), True),
        (lambda h: h.sort(0).values, True),
        (lambda h: torch.segment_reduce(h, "sum", lengths=torch.tensor([1, 3])), True),
        (lambda h: torch.cat([h[:1], h[1:]]), True),
        (lambda h: torch.cat([h, h], 1), False),
        (lambda h: torch.zeros(4, 3, 5).index_put((torch.tensor([2, 0, 1, 3]),), h), True),
        (lambda h: h.flip(0), True),
        (lambda h: h.roll(1, -3), True),
        (lambda h: h.flip(1) + h.roll(1, 2), False),
        (lambda h: h.mean((1, 2)), False),
        (lambda h: h.mean((0, 1)), True),
        (lambda h: h.sum(), True),
        (lambda h: h.max(0).values + h.transpose(0, 1).amax(1), True),
        (lambda h: h.transpose(0, 1).mean(0), False),
        (lambda h: h.transpose(0, 1).logsumexp(1), True),
        (lambda h: h.softmax(-1) + h.cumsum(1), False),
        (lambda h: h.cumsum(0), True),
        (lambda h: h @ torch.randn(5, 2), False),
        (lambda h: torch.randn(4, 4) @ h.flatten(1), True),
        (lambda h: h.flatten(1) @ h.flatten(1).T, True),
        (lambda h: h @ h.transpose(1, 2), False),
        (lambda h: h.transpose(0, 1) @ h.permute(1, 2, 0), True),
        (lambda h: h[1:], True),
        (lambda h: h[0], True),
        (lambda h: h.chunk(2)[0], True),
        (lambda h: h.transpose(0, 1)[:, 1:], True),
        (lambda h: h[:, 0], False),
        (lambda h: h.repeat(1, 2, 1)[:, :4][:, -1], False),  # as many positions as samples
        (lambda h: h[..., :4].chunk(2, -1)[0], False),
    ],
)
def test_what_may_put_samples_in_another_order_or_make_one_of_several(move, moves):
    hidden = nn.Linear(5, 5)(torch.randn(4, 3, 5))
    assert Graph(move(hidden)).moves_samples(4) is moves
    assert not Graph(move(hidden)).moves_samples(1)
