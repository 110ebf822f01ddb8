import pytest
import torch

from corestream.selection.gss import gss_replace, gss_scores


def scores(new, stored):
    present = torch.ones(len(stored), dtype=torch.bool)
    return gss_scores(new @ stored.T, new.norm(dim=1), stored.norm(dim=1), present)


def test_the_score_is_one_plus_the_largest_cosine():
    stored = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    new = torch.tensor([[3.0, 0.0], [-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    assert scores(new, stored).tolist() == pytest.approx([2.0, 1 - 0.5**0.5, 1.0, 1 + 0.5**0.5])


def test_empty_slots_are_not_compared_with():
    new, stored = torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    found = gss_scores(new @ stored.T, new.norm(dim=1), stored.norm(dim=1), torch.tensor([True, False]))
    assert found.tolist() == [0.0]
    empty = gss_scores(new @ stored.T, new.norm(dim=1), stored.norm(dim=1), torch.tensor([False, False]))
    assert empty.tolist() == pytest.approx([0.1])


def test_a_gradient_that_is_not_finite_never_enters():
    new, stored = torch.tensor([[torch.nan, 0.0]]), torch.tensor([[1.0, 0.0]])
    result = gss_replace(torch.tensor([1.0]), torch.tensor(0), scores(new, stored), torch.zeros(1, 2))
    assert result.slots.tolist() == [-1]
    assert result.filled == 0


def test_samples_fill_the_memory_first_whatever_they_score():
    result = gss_replace(torch.zeros(3), torch.tensor(1), torch.tensor([1.9, 0.2, 1.9]), torch.zeros(3, 2))
    assert result.slots.tolist() == [1, 2, -1]
    assert result.filled == 3
    assert result.scores.tolist() == pytest.approx([0.0, 1.9, 0.2])


def test_a_redundant_sample_never_replaces():
    result = gss_replace(torch.tensor([1.9, 1.9]), torch.tensor(2), torch.tensor([1.0]), torch.zeros(1, 2))
    assert result.slots.tolist() == [-1]


def test_replacement_has_the_papers_probabilities():
    torch.manual_seed(0)
    stored, score, n = torch.tensor([1.5, 0.5, 0.0]), torch.tensor([0.5]), 4000
    outcomes = [int(gss_replace(stored, torch.tensor(3), score, torch.rand(1, 2)).slots) for _ in range(n)]
    # slot i is challenged with C_i / ΣC and falls with C_i / (C_i + c)
    assert outcomes.count(0) / n == pytest.approx(0.75 * 0.75, abs=0.03)
    assert outcomes.count(1) / n == pytest.approx(0.25 * 0.5, abs=0.03)
    assert outcomes.count(2) == 0


def test_a_replaced_slot_takes_the_new_score():
    result = gss_replace(
        torch.tensor([1.9]), torch.tensor(1), torch.tensor([0.3]), torch.tensor([[0.5, 0.0]])
    )
    assert result.slots.tolist() == [0]
    assert result.scores.tolist() == pytest.approx([0.3])


def test_of_two_samples_in_one_slot_the_later_stays():
    draws = torch.tensor([[0.5, 0.0], [0.5, 0.0]])
    result = gss_replace(torch.tensor([1.9]), torch.tensor(1), torch.tensor([0.9, 0.3]), draws)
    assert result.slots.tolist() == [-1, 0]
    assert result.scores.tolist() == pytest.approx([0.3])
