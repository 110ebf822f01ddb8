"""S, V and A by both exact routes, against their definitions (Eq. 3, 4 and 7)."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corestream import per_sample_gradients
from corestream.selection.criteria import gradient_criteria, joint_criteria, vector_criteria

ROUTES = ["gram", "linear", "auto"]


def cosine(a, b):
    scale = a.norm() * b.norm()
    return (a @ b) / scale if scale > 0 else torch.zeros((), dtype=a.dtype)


def by_definition(rows, reference=None):
    """Eq. 3, 4 and 7, sample by sample."""
    count, mean = len(rows), rows.mean(0)
    similarity = torch.stack([cosine(g, mean) for g in rows])
    diversity = torch.stack(
        [
            -sum((cosine(rows[n], rows[p]) for p in range(count) if p != n), torch.zeros(()))
            / max(1, count - 1)
            for n in range(count)
        ]
    )
    affinity = (
        torch.zeros(count) if reference is None else torch.stack([cosine(g, reference.mean(0)) for g in rows])
    )
    return similarity, diversity, affinity


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.embed(x))).mean(1))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)), (6,)),
    "sequences": (Sequences, (4, 6)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)),
        (2, 5, 5),
    ),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def case(request):
    torch.manual_seed(0)
    make, shape = request.param
    model = make().double()
    return model, lambda n: (torch.randn(n, *shape, dtype=torch.float64), torch.arange(n) % 3)


def rows_of(model, batch):
    losses = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
    parameters = list(model.parameters())
    return torch.stack(
        [
            torch.cat([g.flatten() for g in torch.autograd.grad(one, parameters, retain_graph=True)])
            for one in losses
        ]
    )


def assert_equal(criteria, expected):
    for found, right in zip(criteria[:3], expected, strict=True):
        torch.testing.assert_close(found, right.to(found), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("count", [2, 7, 40])
def test_every_route_is_the_definition(case, route, count):
    model, draw = case
    batch = draw(count)
    criteria = gradient_criteria(per_sample_gradients(model, None, batch), None, route)
    assert_equal(criteria, by_definition(rows_of(model, batch)))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("count", "others"), [(7, 1), (3, 20), (20, 3)])
def test_every_route_with_a_reference_is_the_definition(case, route, count, others):
    model, draw = case
    batch, reference = draw(count), draw(others)
    expected = by_definition(rows_of(model, batch), rows_of(model, reference))
    apart = [per_sample_gradients(model, None, part) for part in (batch, reference)]
    assert_equal(gradient_criteria(*apart, route), expected)
    joined = tuple(torch.cat(columns) for columns in zip(batch, reference, strict=True))
    assert_equal(joint_criteria(per_sample_gradients(model, None, joined), count, route), expected)


@pytest.mark.parametrize("route", ROUTES)
def test_samples_that_are_not_finite_count_for_nothing(case, route):
    """The mean gradient and the number of the others are over the finite ones."""
    model, draw = case
    (x, y), (rx, ry) = draw(6), draw(4)
    good, kept = torch.tensor([0, 1, 3, 5]), torch.tensor([1, 2, 3])
    expected = by_definition(rows_of(model, (x[good], y[good])), rows_of(model, (rx[kept], ry[kept])))
    x[[2, 4], 0], rx[0, 0] = torch.nan, torch.inf
    apart = [per_sample_gradients(model, None, part) for part in ((x, y), (rx, ry))]
    both = per_sample_gradients(model, None, (torch.cat([x, rx]), torch.cat([y, ry])))
    for criteria in (gradient_criteria(*apart, route), joint_criteria(both, 6, route)):
        assert criteria.finite.tolist() == [True, True, False, True, False, True]
        assert_equal(type(criteria)(*(column[good] for column in criteria)), expected)
        assert torch.isfinite(torch.stack(criteria[:3])).all()


@pytest.mark.parametrize("route", ROUTES)
def test_one_sample_has_similarity_one_and_diversity_zero(case, route):
    model, draw = case
    criteria = gradient_criteria(per_sample_gradients(model, None, draw(1)), None, route)
    torch.testing.assert_close(criteria.similarity, torch.ones(1, dtype=torch.float64))
    assert criteria.diversity.abs() < 1e-12
    assert criteria.affinity.tolist() == [0.0]


@pytest.mark.parametrize("route", ROUTES)
def test_one_finite_sample_among_others_has_diversity_zero(case, route):
    model, draw = case
    x, y = draw(3)
    x[1:, 0] = torch.nan
    criteria = gradient_criteria(per_sample_gradients(model, None, (x, y)), None, route)
    torch.testing.assert_close(criteria.similarity[0], torch.tensor(1.0, dtype=torch.float64))
    assert criteria.diversity[0].abs() < 1e-12


@pytest.mark.parametrize("route", ROUTES)
def test_a_zero_gradient_has_cosine_zero_with_everything(case, route):
    model, draw = case
    x, _ = draw(5)
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 0.0], dtype=torch.float64)

    def loss_fn(outputs, targets):
        return outputs.square().sum(1) * targets

    grads = per_sample_gradients(model, loss_fn, (x, weight))
    parameters = list(model.parameters())
    losses = loss_fn(model(x), weight)
    rows = torch.stack(
        [
            torch.cat([g.flatten() for g in torch.autograd.grad(one, parameters, retain_graph=True)])
            for one in losses
        ]
    )
    criteria = gradient_criteria(grads, grads[1:2], route)
    assert criteria.similarity[[1, 4]].tolist() == [0.0, 0.0]
    assert criteria.diversity[[1, 4]].tolist() == [0.0, 0.0]
    assert criteria.affinity.tolist() == [0.0] * 5
    assert_equal(criteria, by_definition(rows, rows[1:2]))


@pytest.mark.parametrize("route", ROUTES)
def test_gradients_that_cancel_have_similarity_zero(route):
    model = nn.Linear(2, 1, bias=False).double()
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    grads = per_sample_gradients(
        model, lambda outputs, t: outputs[:, 0] * t, (x, torch.tensor([1.0, -1.0], dtype=torch.float64))
    )
    criteria = gradient_criteria(grads, grads, route)
    assert criteria.similarity.tolist() == [0.0, 0.0]
    assert criteria.affinity.tolist() == [0.0, 0.0]
    torch.testing.assert_close(criteria.diversity, torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
def test_gradients_that_nearly_cancel_never_pass_for_more_than_parallel(route, size):
    """Their sum is lost in the rounding of a Gram matrix, which is no reason for scores of 10¹⁵."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 64), nn.Tanh(), nn.Linear(64, 1))
    x, signs = torch.randn(1, 300).repeat(8, 1), torch.tensor([1.0 + size, -1.0] + [1.0, -1.0] * 3)

    def grads(t):
        return per_sample_gradients(model, lambda outputs, t: outputs[:, 0] * t, (x, t))

    for found in (
        gradient_criteria(grads(signs), grads(signs), route),
        gradient_criteria(grads(torch.ones(8)), grads(signs), route),
        joint_criteria(
            per_sample_gradients(
                model,
                lambda outputs, t: outputs[:, 0] * t,
                (x.repeat(2, 1), torch.cat([torch.ones(8), signs])),
            ),
            8,
            route,
        ),
    ):
        assert found.similarity.abs().max() <= 1 + 1e-5
        assert found.affinity.abs().max() <= 1 + 1e-5
    if size == 1e-2:  # well above the rounding
        right = torch.tensor([1.0, -1.0] * 4)
        torch.testing.assert_close(
            gradient_criteria(grads(signs), None, route).similarity, right, rtol=0, atol=0.01
        )


@pytest.mark.parametrize("route", ROUTES)
def test_gradients_of_half_precision_are_summed_in_single(route):
    """The square of a sum overflows float16 long before the gradients do."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).half()
    draws = [((8 * torch.randn(n, 16)).half(), torch.arange(n) % 4) for n in (12, 300)]
    rows, others = (rows_of(model, draw).float() for draw in draws)
    assert others.sum(0).norm() > 256  # whose square float16 cannot hold
    grads, reference = (per_sample_gradients(model, None, draw) for draw in draws)
    expected = by_definition(rows, others)
    joint = per_sample_gradients(
        model, None, (torch.cat([x for x, _ in draws]), torch.cat([y for _, y in draws]))
    )
    for found in (gradient_criteria(grads, reference, route), joint_criteria(joint, 12, route)):
        for ours, right in zip(found[:3], expected, strict=True):
            assert ours.dtype == torch.float32
            torch.testing.assert_close(ours, right, rtol=0, atol=2e-3)


def test_an_unknown_route_is_an_error(case):
    model, draw = case
    with pytest.raises(ValueError, match="route must be one of auto, gram, linear, got 'fast'"):
        gradient_criteria(per_sample_gradients(model, None, draw(3)), None, "fast")


def test_the_routes_agree_under_autocast(case):
    """Both in full precision, whatever the caller's context."""
    model, draw = case
    grads = per_sample_gradients(model, None, draw(6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = gradient_criteria(grads, grads, "gram")
    for a, b in zip(inside, gradient_criteria(grads, grads, "linear"), strict=True):
        torch.testing.assert_close(a, b)


def test_vectors_have_the_same_criteria():
    vectors, reference = torch.randn(6, 9, dtype=torch.float64), torch.randn(4, 9, dtype=torch.float64)
    vectors[2] = 0
    assert_equal(vector_criteria(vectors, reference), by_definition(vectors, reference))
    assert_equal(vector_criteria(vectors), by_definition(vectors))


def test_vectors_that_are_not_finite_count_for_nothing():
    vectors, reference = torch.randn(5, 9, dtype=torch.float64), torch.randn(4, 9, dtype=torch.float64)
    expected = by_definition(vectors[1:], reference[1:])
    vectors[0, 3], reference[0, 0] = torch.nan, torch.inf
    criteria = vector_criteria(vectors, reference)
    assert criteria.finite.tolist() == [False, True, True, True, True]
    assert_equal(type(criteria)(*(column[1:] for column in criteria)), expected)


def test_vectors_of_half_precision_are_compared_in_single():
    vectors, reference = torch.randn(40, 30).bfloat16(), torch.randn(9, 30).bfloat16()
    found, exact = vector_criteria(vectors, reference), vector_criteria(vectors.double(), reference.double())
    for one, other in zip(found[:3], exact[:3], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)
