"""Whatever is missing or not finite has no part in the update, and the picks that are left share their weight."""

import torch

from corestream.learners.joint_update import update_rows

SHARES = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.5, 0.5])  # four picks, and two replayed with λ = 1
AGAIN = torch.tensor([6, 7])


def weight_of_each(picked: list[int], broken: list[int]) -> list[float]:
    finite = torch.ones(8, dtype=torch.bool)
    finite[broken] = False
    rows, weights = update_rows(torch.tensor(picked), AGAIN, finite, SHARES)
    assert finite[rows].all()
    return torch.zeros(8).index_add_(0, rows, weights).tolist()


def test_whole_batches_have_the_shares_as_they_are() -> None:
    assert weight_of_each([3, 0, 5, 1], []) == [0.25, 0.25, 0, 0.25, 0, 0.25, 0.5, 0.5]


def test_fewer_picks_share_the_same_weight() -> None:
    assert weight_of_each([3, 0, -1, -1], [1]) == [0.5, 0, 0, 0.5, 0, 0, 0.5, 0.5]


def test_a_replayed_sample_that_is_not_finite_has_no_part() -> None:
    assert weight_of_each([3, 0, 5, 1], [7]) == [0.25, 0.25, 0, 0.25, 0, 0.25, 0.5, 0]
