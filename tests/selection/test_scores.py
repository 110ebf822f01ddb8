import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corestream import NonFiniteError, Scores, per_sample_gradients, score
from corestream.selection.criteria import Criteria, gradient_criteria
from corestream.selection.scores import top, weigh


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()


@pytest.fixture
def draw():
    def batch(n=6, seed=0):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(n, 4, generator=generator, dtype=torch.float64), torch.arange(n) % 3

    return batch


@pytest.fixture
def scores():
    total = torch.tensor([0.1, 5.0, -torch.inf, 2.0, -3.0])
    return Scores(total, total, total, total)


def test_the_best_come_first(scores):
    assert scores.top(2).tolist() == [1, 3]
    assert scores.top(4).tolist() == [1, 3, 0, 4]


def test_what_is_not_finite_is_never_picked_and_leaves_minus_one(scores):
    assert scores.top(5).tolist() == [1, 3, 0, 4, -1]
    assert top(torch.full((3,), -torch.inf), 2).tolist() == [-1, -1]


def test_all_are_picked_where_k_exceeds_the_batch(scores):
    assert scores.top(50).tolist() == [1, 3, 0, 4, -1]


@pytest.mark.parametrize("k", [0, -3])
def test_k_below_one_is_an_error(scores, k):
    with pytest.raises(ValueError, match=f"k must be a whole number of at least 1, got {k}"):
        scores.top(k)


def test_the_total_weighs_the_three_criteria():
    """Eq. 8, with weights for the ablations."""
    columns = [torch.randn(4) for _ in range(3)]
    finite = torch.tensor([True, True, False, True])
    found = weigh(Criteria(*columns, finite), 10.0, (0.5, 2.0, 3.0)).total
    expected = 0.5 * columns[0] + 2.0 * columns[1] + 30.0 * columns[2]
    torch.testing.assert_close(found[finite], expected[finite])
    assert found[2] == -torch.inf


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 1.0, 1.0, 1.0)])
def test_weights_that_are_not_three_are_an_error(model, draw, weights):
    message = f"weights must be three numbers, for S, V and A, not all of them 0, got {weights}"
    with pytest.raises(ValueError, match=re.escape(message)):
        score(model, None, draw(), weights=weights)


@pytest.mark.parametrize("weights", [3, None, "SVA"])
def test_weights_of_another_kind_are_an_error(model, draw, weights):
    with pytest.raises(ValueError, match="weights must be three numbers"):
        score(model, None, draw(), weights=weights)


def test_a_wrong_target_of_the_reference_is_told_as_the_references(model, draw):
    x, y = draw()
    with pytest.raises(ValueError, match=r"reference: targets\[0\] is 50"):
        score(model, None, (x, y), reference=(x[:3], y[:3] * 0 + 50))
    with pytest.raises(ValueError, match=r"^targets\[0\] is 50"):
        score(model, None, (x, y * 0 + 50), reference=(x[:3], y[:3]))


def test_affinity_is_zero_without_a_reference(model, draw):
    scores = score(model, None, draw())
    assert scores.affinity.tolist() == [0.0] * 6
    torch.testing.assert_close(scores.total, scores.similarity + scores.diversity)


@pytest.mark.parametrize("route", ["gram", "linear", "auto"])
def test_a_reference_in_the_same_pass_gives_what_a_pass_of_its_own_gives(model, draw, route):
    batch, reference = draw(), draw(5, seed=1)
    scores = score(model, None, batch, reference, tau=7.0, route=route)
    apart = gradient_criteria(
        per_sample_gradients(model, None, batch), per_sample_gradients(model, None, reference)
    )
    for found, expected in zip(
        (scores.similarity, scores.diversity, scores.affinity), apart[:3], strict=True
    ):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(scores.total, apart.similarity + apart.diversity + 7.0 * apart.affinity)


def test_under_batch_statistics_batch_and_reference_have_each_their_own(draw):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).double()
    batch, (rx, ry) = draw(), draw(5, seed=1)
    reference = (rx * 10 + 3, ry)
    scores = score(model, None, batch, reference)
    apart = gradient_criteria(
        per_sample_gradients(model, None, batch), per_sample_gradients(model, None, reference)
    )
    torch.testing.assert_close(scores.affinity, apart.affinity)
    torch.testing.assert_close(scores.similarity, apart.similarity)


def test_parameters_restrict_what_is_compared(model, draw):
    batch, reference = draw(), draw(5, seed=1)
    scores = score(model, None, batch, reference, parameters=["2"])
    part = [per_sample_gradients(model, None, b, parameters=["2"]) for b in (batch, reference)]
    torch.testing.assert_close(scores.affinity, gradient_criteria(*part).affinity)
    assert not torch.allclose(scores.affinity, score(model, None, batch, reference).affinity)


def test_the_mode_is_the_models_own_unless_told(draw):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)).double()
    batch = draw()
    still = score(model.eval(), None, batch).total
    torch.testing.assert_close(score(model.train(), None, batch, mode="eval").total, still)
    assert not torch.allclose(score(model, None, batch).total, still)
    assert not torch.allclose(score(model.eval(), None, batch, mode="train").total, still)
    with pytest.raises(ValueError, match="mode must be None, 'train' or 'eval', got 'test'"):
        score(model, None, batch, mode="test")


def test_inputs_may_be_tuples_or_dicts(draw):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.Linear(4, 6)

        def forward(self, x, task):
            return self.heads(x).view(-1, 2, 3)[torch.arange(len(x)), task]

    torch.manual_seed(0)
    model, (x, y), task = Heads().double(), draw(), torch.arange(6) % 2
    one = score(model, None, ((x, task), y), ((x[:2], task[:2]), y[:2]))
    two = score(model, None, ({"x": x, "task": task}, y), ({"task": task[:2], "x": x[:2]}, y[:2]))
    torch.testing.assert_close(one.total, two.total)


@pytest.mark.parametrize("with_reference", [True, False])
def test_a_sample_that_is_not_finite_scores_minus_infinity(model, draw, with_reference):
    (x, y), reference = draw(), draw(5, seed=1) if with_reference else None
    rest = torch.tensor([0, 1, 2, 4, 5])
    expected = score(model, None, (x[rest], y[rest]), reference)
    x[3, 1] = torch.nan
    scores = score(model, None, (x, y), reference)
    assert scores.total[3] == -torch.inf
    torch.testing.assert_close(scores.total[rest], expected.total)
    assert 3 not in scores.top(6).tolist()
    assert scores.top(6)[-1] == -1


def test_a_reference_sample_that_is_not_finite_is_left_out_of_the_mean(model, draw):
    batch, (rx, ry) = draw(), draw(5, seed=1)
    expected = score(model, None, batch, (rx[1:], ry[1:]))
    rx[0, 0] = torch.inf
    torch.testing.assert_close(score(model, None, batch, (rx, ry)).total, expected.total)


def test_nothing_finite_is_an_error_that_names_the_samples(model, draw):
    x, y = draw(3)
    x[:, 0] = torch.nan
    with pytest.raises(NonFiniteError, match=r"the inputs of samples \[0, 1, 2\] are not finite"):
        score(model, None, (x, y))


def test_a_model_that_has_diverged_is_an_error_that_says_so(model, draw):
    with torch.no_grad():
        model[0].weight.fill_(torch.nan)
    with pytest.raises(NonFiniteError, match="the model has diverged"):
        score(model, None, draw())


def test_one_bad_input_under_batch_statistics_is_an_error_that_names_it(draw):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
    x, y = draw()
    x[4, 2] = torch.nan
    with pytest.raises(
        NonFiniteError,
        match=r"samples \[4\] are not finite, and where samples depend on each other one bad input spoils",
    ):
        score(model, None, (x, y))
    score(model.eval(), None, (x, y))


def test_float32_scores_are_close_to_float64(draw):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    (x, y), (rx, ry) = draw(20), draw(9, seed=1)
    single = score(model, None, (x.float(), y), (rx.float(), ry), tau=1.0).total
    double = score(model.double(), None, (x, y), (rx, ry), tau=1.0).total
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)


def test_a_loss_of_ones_own_is_used(model, draw):
    x, y = draw()

    def smoothed(outputs, targets):
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.3)

    expected = gradient_criteria(per_sample_gradients(model, smoothed, (x, y)))
    torch.testing.assert_close(score(model, smoothed, (x, y)).similarity, expected.similarity)


def test_a_reference_of_sequences_of_another_length_goes_in_a_pass_of_its_own(draw):
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

        def forward(self, tokens):
            return self.head(torch.tanh(self.embedding(tokens)).mean(1))

    torch.manual_seed(0)
    model, y = Tokens().double(), torch.arange(4) % 3
    batch, reference = (torch.randint(0, 9, (4, 7)), y), (torch.randint(0, 9, (4, 3)), y)
    apart = gradient_criteria(*(per_sample_gradients(model, None, part) for part in (batch, reference)))
    torch.testing.assert_close(score(model, None, batch, reference).affinity, apart.affinity)


def test_a_score_that_is_no_number_comes_last():
    parts = torch.tensor([0.5, torch.nan, -0.5])
    scores = weigh(Criteria(parts, torch.zeros(3), torch.zeros(3), None), 1.0)
    assert scores.total.tolist() == [0.5, -torch.inf, -0.5]
    assert scores.top(3).tolist() == [0, 2, -1]


def test_labels_that_are_no_tensor_are_told(model, draw):
    x, y = draw()
    with pytest.raises(TypeError, match="takes a tensor of targets, got a ndarray"):
        score(model, None, (x, y.numpy()))


@pytest.mark.parametrize(
    "options",
    [{"tau": torch.nan}, {"tau": -1.0}, {"weights": (1.0, torch.inf, 1.0)}, {"weights": (0, 0, 0)}],
    ids=str,
)
def test_weights_that_are_no_numbers_are_an_error(model, draw, options):
    with pytest.raises(ValueError, match=r"tau must be a finite number|weights must be three numbers"):
        score(model, None, draw(), **options)


class Rebuilding(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return (self.layer(x) - x).square().mean(1)


@pytest.mark.parametrize(
    "make", [lambda n: None, lambda n: [0] * n, lambda n: ["a"] * n, lambda n: [torch.zeros(2)] * n]
)
def test_a_reference_may_come_with_targets_that_are_no_tensors(make):
    torch.manual_seed(0)
    model, x, y = Rebuilding(), torch.randn(6, 4), torch.zeros(6)
    expected = score(model, lambda losses, _: losses, (x, y), reference=(x[:3], y[:3]))
    found = score(model, lambda losses, _: losses, (x, make(6)), reference=(x[:3], make(3)))
    torch.testing.assert_close(found.affinity, expected.affinity)
