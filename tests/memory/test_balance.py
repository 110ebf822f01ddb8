import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corestream.memory.balance import balanced, groups


def test_groups_take_turns_and_the_best_of_each_comes_first():
    members = torch.tensor([0, 0, 0, 1, 1, 2])
    priority = torch.tensor([0.1, 0.9, 0.5, 0.2, 0.3, 0.0])
    assert set(balanced(members, 3, priority).tolist()) == {1, 4, 5}
    assert set(balanced(members, 5, priority).tolist()) == {1, 4, 5, 2, 3}


def test_a_share_that_does_not_divide_goes_to_the_best():
    members, priority = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    assert set(balanced(members, 4, priority).tolist()) == {0, 2, 4, 1}


def test_a_priority_that_is_not_a_number_is_the_lowest():
    priority = torch.tensor([torch.nan, 2.0, -torch.inf, torch.inf])
    assert balanced(torch.zeros(4), 2, priority).tolist() == [3, 1]
    assert balanced(torch.zeros(3), 2, torch.tensor([torch.nan, torch.nan, -3.0])).tolist() == [2, 0]


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 40))
def test_the_quota_is_met_while_samples_exist_and_no_group_is_two_ahead_of_one_that_has_more(members, quota):
    chosen = balanced(torch.tensor(members), quota, torch.rand(len(members)))
    assert len(chosen) == min(quota, len(members))
    assert len(set(chosen.tolist())) == len(chosen)
    taken = torch.bincount(torch.tensor(members)[chosen], minlength=5)
    there = torch.bincount(torch.tensor(members), minlength=5)
    most = int(taken.max())
    assert all(taken[g] >= min(int(there[g]), most - 1) for g in range(5))


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=20), st.data())
def test_within_a_group_nobody_better_is_left_behind(members, data):
    quota = data.draw(st.integers(1, len(members)))
    priority = torch.randperm(len(members)).float()
    chosen = set(balanced(torch.tensor(members), quota, priority).tolist())
    for n in set(range(len(members))) - chosen:
        assert not any(members[m] == members[n] and priority[m] < priority[n] for m in chosen)


def test_a_group_may_be_a_class_nothing_or_what_a_callable_makes():
    targets = torch.tensor([3, 1, 3])
    assert groups(targets, "class").tolist() == [3, 1, 3]
    assert groups(targets, None).tolist() == [0, 0, 0]
    assert groups(torch.tensor([[0.1], [2.3], [0.7]]), lambda t: t[:, 0].long()).tolist() == [0, 2, 0]


def test_targets_that_are_no_classes_are_an_error_that_says_what_to_give():
    for targets in (torch.randn(3), torch.zeros(3, 2, dtype=torch.long)):
        with pytest.raises(
            ValueError,
            match=r"balance='class' needs one integer target a sample.*balance=None, or a callable",
        ):
            groups(targets, "class")
    with pytest.raises(ValueError, match=r"a callable .* groups, as balance=lambda y: y\.long\(\)"):
        groups(torch.randn(3), "class")
    with pytest.raises(ValueError, match=r"give y\.squeeze\(1\), or else balance=None"):
        groups(torch.zeros(3, 1, dtype=torch.long), "class")
    with pytest.raises(ValueError, match=r"one group a sample, shape \[3\]"):
        groups(torch.randn(3), lambda targets: targets[:2])
