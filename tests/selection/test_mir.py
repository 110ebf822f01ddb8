import pytest
import torch

from corestream.selection.mir import most_interfered


def test_the_largest_rise_wins_not_the_largest_loss():
    before = torch.tensor([5.0, 1.0, 0.1, 2.0])
    after = torch.tensor([5.1, 3.0, 1.1, 0.0])
    assert most_interfered(before, after, 2).tolist() == [1, 2]


def test_a_sample_the_step_breaks_is_first_and_one_broken_before_is_last():
    before = torch.tensor([1.0, torch.nan, 1.0, 1.0])
    after = torch.tensor([2.0, 9.0, torch.nan, 3.0])
    assert most_interfered(before, after, 4).tolist() == [2, 3, 0, 1]


def test_k_beyond_the_samples_gives_all():
    assert most_interfered(torch.zeros(2), torch.tensor([0.0, 1.0]), 5).tolist() == [1, 0]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="before has shape"):
        most_interfered(torch.zeros(2), torch.zeros(3), 1)
    with pytest.raises(ValueError, match="k must be a whole number of at least 1, got 0"):
        most_interfered(torch.zeros(2), torch.zeros(2), 0)
