import pytest
import torch

from corestream.selection.kmeans import kmeans_plus_plus


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_far_apart_clusters_each_give_one_sample():
    centres = torch.tensor([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0], [100.0, 100.0]])
    points = centres.repeat_interleave(50, 0) + torch.randn(200, 2, generator=generator())
    for seed in range(10):
        picked = kmeans_plus_plus(points, 4, generator=generator(seed))
        assert sorted((picked // 50).tolist()) == [0, 1, 2, 3]


def test_equal_seeds_give_equal_picks():
    points = torch.randn(40, 3)
    first = kmeans_plus_plus(points, 5, generator=generator(1))
    assert torch.equal(first, kmeans_plus_plus(points, 5, generator=generator(1)))
    assert not torch.equal(first, kmeans_plus_plus(points, 5, generator=generator(2)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_repeated_points_are_not_picked_twice():
    points = torch.zeros(6, 2)
    assert sorted(kmeans_plus_plus(points, 6, generator=generator()).tolist()) == [0, 1, 2, 3, 4, 5]


def test_rows_that_are_not_finite_are_left_out():
    points = torch.tensor([[0.0], [torch.nan], [5.0], [torch.inf]])
    assert sorted(kmeans_plus_plus(points, 3, generator=generator()).tolist()) == [-1, 0, 2]
