from itertools import combinations

import torch

from corestream.selection.grad_matching import grad_matching


def distance(gradients, picked):
    return float((gradients.mean(0) - gradients[list(picked)].mean(0)).norm())


def test_the_first_pick_is_the_gradient_nearest_the_mean():
    gradients = torch.randn(12, 6)
    nearest = (gradients - gradients.mean(0)).norm(dim=1).argmin()
    assert grad_matching(gradients @ gradients.T, 3)[0] == nearest


def test_a_pair_that_averages_to_the_mean_is_found():
    gradients = torch.tensor([[0.9, 0.0], [0.0, 5.0], [1.1, -5.0], [2.0, 0.3], [0.0, -0.3], [2.0, 0.0]])
    picked = grad_matching(gradients @ gradients.T, 2).tolist()
    assert picked[0] == 0
    assert distance(gradients, picked) == min(distance(gradients, (0, n)) for n in range(1, 6))


def test_greedy_comes_close_to_the_best_of_all_choices():
    ratios = []
    for seed in range(10):
        gradients = torch.randn(9, 3, generator=torch.Generator().manual_seed(seed))
        best = min(distance(gradients, c) for c in combinations(range(9), 4))
        mean = sum(distance(gradients, c) for c in combinations(range(9), 4)) / 126
        found = distance(gradients, grad_matching(gradients @ gradients.T, 4).tolist())
        ratios.append((found - best) / (mean - best))
    assert sum(ratios) / len(ratios) < 0.35
