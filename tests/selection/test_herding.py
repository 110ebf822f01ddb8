import torch
from torch.nn.functional import normalize

from corestream.selection.herding import herding, herding_per_class


def brute_force(features, k):
    """iCaRL's Algorithm 4, word for word."""
    phi = [f / f.norm() for f in features]
    mean = sum(phi) / len(phi)
    picked = []
    for j in range(1, k + 1):
        left = [n for n in range(len(phi)) if n not in picked]
        picked.append(min(left, key=lambda n: (mean - (phi[n] + sum(phi[p] for p in picked)) / j).norm()))
    return picked


def test_herding_is_the_brute_force_on_8_points():
    for seed in range(20):
        features = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for k in (1, 4, 8):
            assert herding(features, k).tolist() == brute_force(list(features), k)


def test_the_first_pick_of_fewer_is_the_first_of_more():
    features = torch.randn(30, 5)
    assert torch.equal(herding(features, 20)[:7], herding(features, 7))


def test_the_mean_of_the_picks_approaches_the_mean_faster_than_random_ones():
    torch.manual_seed(0)
    features = normalize(torch.randn(200, 8).abs() + torch.randn(200, 8))
    error = (features[herding(features, 20)].mean(0) - features.mean(0)).norm()
    at_random = torch.stack(
        [(features[torch.randperm(200)[:20]].mean(0) - features.mean(0)).norm() for _ in range(50)]
    )
    assert error < at_random.mean() / 4


def test_classes_take_turns_each_in_its_own_order():
    targets = torch.tensor([0, 1, 0, 1, 1, 0, 1])
    features = torch.randn(7, 3)
    first, second = ((targets == label).nonzero()[:, 0] for label in (0, 1))
    first, second = first[herding(features[first], 3)].tolist(), second[herding(features[second], 4)].tolist()
    expected = [first[0], second[0], first[1], second[1], first[2], second[2], second[3]]
    assert herding_per_class(features, targets, 7).tolist() == expected
    assert herding_per_class(features, targets, 3).tolist() == expected[:3]


def test_a_class_with_few_samples_leaves_its_turns_to_the_others():
    targets = torch.tensor([0, 0, 0, 0, 1])
    picked = herding_per_class(torch.randn(5, 3), targets, 4)
    assert targets[picked].tolist() == [0, 1, 0, 0]


def test_features_that_are_not_finite_are_left_out_of_their_class():
    features = torch.randn(4, 2)
    features[1] = torch.nan
    assert sorted(herding_per_class(features, torch.tensor([0, 0, 1, 1]), 4).tolist()) == [-1, 0, 2, 3]
