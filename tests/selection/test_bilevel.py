import sys

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from corestream.selection.bilevel import bilevel, conjugate_gradients, outer_gradient, solve_inner
from corestream.selection.kernels import rbf

RIDGE = 0.1
bilevel_module = sys.modules["corestream.selection.bilevel"]  # the package names its function so, too


def problem(n=12, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(n) % classes
    features = torch.randn(n, 2, generator=generator, dtype=torch.float64) + 2 * one_hot(targets)[:, :2]
    return rbf(features), targets, one_hot(targets).double()


def outer_loss(kernel, labels, weights):
    """G(w) with every sample in the support."""
    everyone = torch.arange(len(kernel))
    alpha = solve_inner(kernel, labels, everyone, weights, RIDGE, tolerance=1e-10)
    return cross_entropy(kernel @ alpha, labels)


@pytest.mark.parametrize("ridge", [0.0, -1.0, torch.nan])
def test_a_ridge_that_means_nothing_is_refused(ridge):
    kernel, targets, _ = problem()
    with pytest.raises(ValueError, match="ridge must be a finite number above 0"):
        bilevel(kernel, targets, 3, ridge=ridge)


def test_targets_that_are_not_one_a_sample_are_refused():
    kernel, targets, _ = problem()
    with pytest.raises(ValueError, match=r"targets has shape \(12, 1\); expected is \[12\]"):
        bilevel(kernel, targets[:, None], 3)


def test_conjugate_gradients_solve_a_linear_system():
    a = torch.randn(6, 6, dtype=torch.float64)
    a, x = a @ a.T + torch.eye(6), torch.randn(6, 2, dtype=torch.float64)
    assert torch.allclose(conjugate_gradients(lambda v: a @ v, a @ x, tolerance=1e-10), x, atol=1e-7)


def test_the_inner_solution_has_no_slope_in_feature_space():
    kernel, _, labels = problem()
    picked, weights = torch.tensor([0, 4, 7, 11]), torch.tensor([1.0, 0.5, 2.0, 0.0]).double()
    alpha = solve_inner(kernel, labels, picked, weights, RIDGE, tolerance=1e-10)
    p = (kernel[picked][:, picked] @ alpha).softmax(1)
    slope = kernel[:, picked] @ (RIDGE * alpha + weights[:, None] * (p - labels[picked]))
    assert slope.abs().max() < 1e-7


def test_the_outer_gradient_is_that_of_finite_differences_inside_and_outside_the_picked():
    kernel, _, labels = problem()
    picked = torch.tensor([0, 4, 7])
    weights = torch.tensor([1.0, 0.5, 2.0]).double()
    alpha = solve_inner(kernel, labels, picked, weights, RIDGE, tolerance=1e-10)
    found = outer_gradient(kernel, labels, picked, weights, RIDGE, alpha, tolerance=1e-10)
    full = torch.zeros(len(kernel)).double().index_put((picked,), weights)
    at = [outer_loss(kernel, labels, full)]
    for i in range(len(kernel)):
        # to the right only, for a weight is never negative
        bump = torch.zeros_like(full).index_fill(0, torch.tensor(i), 1e-4)
        at[1:] = [outer_loss(kernel, labels, full + bump), outer_loss(kernel, labels, full + 2 * bump)]
        slope = (-3 * at[0] + 4 * at[1] - at[2]) / 2e-4
        assert abs(found[i] - slope) < 1e-5 * found.abs().max() + 1e-8


def test_the_picked_explain_all_samples_better_than_random_ones():
    torch.manual_seed(0)
    kernel, targets, labels = problem(n=60)
    found = bilevel(kernel, targets, 6, ridge=RIDGE, generator=torch.Generator().manual_seed(1))
    assert len(found.picked.unique()) == 6

    def loss(picked, weights):
        alpha = solve_inner(kernel, labels, picked, weights, RIDGE)
        return float(cross_entropy(kernel[:, picked] @ alpha, labels))

    at_random = [loss(torch.randperm(60)[:6], torch.ones(6).double()) for _ in range(40)]
    assert loss(found.picked, torch.ones(6).double()) < sorted(at_random)[4]
    assert loss(found.picked, found.weights) < min(at_random)


def test_every_class_is_found():
    kernel, targets, _ = problem(n=60)
    assert set(targets[bilevel(kernel, targets, 3).picked].tolist()) == {0, 1, 2}


def test_more_than_there_are_and_rows_that_are_not_finite():
    kernel, targets, _ = problem(n=6)
    kernel[2, :] = torch.nan
    kernel[:, 2] = torch.nan
    assert sorted(bilevel(kernel, targets, 9).picked.tolist()) == [0, 1, 3, 4, 5]


def test_nothing_finite_leaves_nothing_to_pick():
    found = bilevel(torch.full((3, 3), torch.nan), torch.tensor([0, 1, 1]), 2)
    assert len(found.picked) == len(found.weights) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_lies_on_a_card_is_picked_as_beside_it_and_told_there():
    kernel, targets, _ = problem()
    here = bilevel(kernel, targets, 5, generator=torch.Generator().manual_seed(0))
    there = bilevel(kernel.cuda(), targets.cuda(), 5, generator=torch.Generator().manual_seed(0))
    assert there.picked.is_cuda
    assert there.weights.is_cuda
    assert there.picked.tolist() == here.picked.tolist()
    assert torch.equal(there.weights.cpu(), here.weights)


def test_the_callers_threads_are_as_they_were(monkeypatch):
    kernel, targets, _ = problem()
    before, inside = torch.get_num_threads(), []
    ordinary = bilevel_module.solve_inner
    monkeypatch.setattr(
        bilevel_module,
        "solve_inner",
        lambda *args, **given: (inside.append(torch.get_num_threads()), ordinary(*args, **given))[1],
    )
    torch.set_num_threads(2)
    try:
        bilevel(kernel, targets, 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(inside) == {1}


def test_a_kernel_of_zeros_tells_no_sample_from_another():
    """Whatever is picked, all outputs are 0 and G(w) is log C: no weight has a slope, and each stays at 1."""
    found = bilevel(torch.zeros(6, 6), torch.arange(6) % 3, 4)
    assert found.weights.tolist() == [1.0] * 4
    assert len(found.picked.unique()) == 4


@pytest.mark.parametrize("inner", ["sum", "mean"])
def test_the_second_pick_is_the_one_whose_weight_lowers_the_outer_loss_fastest(inner):
    """By finite differences over inner problems that are solved by another optimiser."""
    kernel, targets, labels = problem()
    kernel = kernel / kernel.diagonal().mean()
    lam = 0.02

    def outer(picked, weights):
        alpha = torch.zeros(len(picked), 3, dtype=torch.float64, requires_grad=True)
        scale = 1 / sum(weight >= 0.5 for weight in weights) if inner == "mean" else 1.0
        optimizer = torch.optim.LBFGS([alpha], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16)

        def closure():
            optimizer.zero_grad()
            scores = kernel[picked][:, picked] @ alpha
            losses = cross_entropy(scores, labels[picked], reduction="none")
            loss = scale * (torch.tensor(weights).double() @ losses) + lam / 2 * (alpha * scores).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return float(cross_entropy(kernel[:, picked] @ alpha.detach(), labels))

    found = bilevel(kernel, targets, 2, ridge=lam, inner=inner, generator=torch.Generator().manual_seed(0))
    first, step = int(found.picked[0]), 1e-4
    slope = (outer([first], [1 + step]) - outer([first], [1 - step])) / (2 * step)
    weight = max(1 - slope, 0.0)
    without = outer([first], [weight])
    falls = {i: outer([first, i], [weight, step]) - without for i in range(12) if i != first}
    assert int(found.picked[1]) == min(falls, key=falls.get)


def test_an_inner_loss_that_is_neither_is_refused():
    kernel, targets, _ = problem()
    with pytest.raises(ValueError, match="inner must be 'sum' or 'mean', got 'max'"):
        bilevel(kernel, targets, 3, inner="max")


def test_a_mean_picks_classes_by_their_shares():
    """With the ridge of the paper's settings; the sum takes rare classes as often as others."""
    torch.manual_seed(0)
    targets = torch.tensor([0] * 80 + [1] * 10 + [2] * 10)
    kernel = rbf(torch.randn(100, 2, dtype=torch.float64) + 2 * one_hot(targets)[:, :2])
    shares = {
        inner: (targets[bilevel(kernel, targets, 20, ridge=ridge, inner=inner).picked] == 0).double().mean()
        for inner, ridge in (("sum", 0.01), ("mean", 0.03))
    }
    assert shares["mean"] > shares["sum"]
