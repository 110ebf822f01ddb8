import pytest
import torch

from corestream.selection.matching import match_mean


def test_a_sample_that_is_not_finite_is_never_picked_nor_in_the_mean():
    v = torch.randn(6, 3, dtype=torch.float64)
    bad = torch.cat([v[:2], torch.full((1, 3), torch.nan), v[2:]])
    expected = match_mean(v @ v.T, 4)
    assert match_mean(bad @ bad.T, 4).tolist() == [int(i) + (int(i) >= 2) for i in expected]


def test_fewer_finite_samples_than_k_leave_minus_one():
    v = torch.tensor([[1.0], [torch.inf], [2.0]])
    assert sorted(match_mean(v @ v.T, 3).tolist()) == [-1, 0, 2]


def test_k_beyond_the_samples_picks_each_once():
    v = torch.randn(5, 2)
    assert sorted(match_mean(v @ v.T, 9).tolist()) == [0, 1, 2, 3, 4]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"gram has shape \(2, 3\)"):
        match_mean(torch.zeros(2, 3), 1)
    with pytest.raises(ValueError, match="k must be a whole number of at least 1, got 0"):
        match_mean(torch.eye(2), 0)
