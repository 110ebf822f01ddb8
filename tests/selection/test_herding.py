import torch
from torch.nn.functional import normalize

from corestream.selection.herding import herding


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
