"""Each share keeps its quota: the best of each group in turn, or random ones; a share that fits stays as it is."""

import pytest
import torch

from corestream.memory import Samples
from corestream.memory.thinning import thinned

TARGETS = torch.tensor([0, 0, 0, 1, 1, 0, 1, 1])
SHARES = [torch.arange(5), torch.arange(5, 8)]


def samples() -> Samples:
    return Samples.of(torch.arange(8.0).unsqueeze(1), TARGETS, task=0)


def kept(quota: int, **given: object) -> list[int]:
    chosen = thinned(samples(), SHARES, quota, **given)  # type: ignore[arg-type]
    return sorted(int(place) for place in chosen.inputs.squeeze(1))  # type: ignore[union-attr]


def test_the_largest_priority_stays_class_by_class() -> None:
    priority = torch.tensor([1.0, 3.0, 2.0, 0.0, 5.0, 9.0, 7.0, 8.0])
    # two of the first share: its best 0 and its best 1; two of the second, likewise
    assert kept(2, balance="class", priority=priority) == [1, 4, 5, 7]


def test_without_a_balance_the_largest_priority_stays() -> None:
    priority = torch.tensor([1.0, 3.0, 2.0, 0.0, -1.0, 6.0, 7.0, 8.0])
    assert kept(2, balance=None, priority=priority) == [1, 2, 6, 7]


def test_a_share_within_its_quota_stays_whole() -> None:
    priority = -torch.arange(8.0)
    assert kept(3, balance="class", priority=priority) == [0, 1, 3, 5, 6, 7]
    assert kept(5, balance="class", priority=priority) == list(range(8))


def test_without_a_priority_chance_decides_evenly() -> None:
    generator, counts = torch.Generator().manual_seed(0), torch.zeros(8)
    for _ in range(600):
        counts[torch.tensor(kept(1, balance=None, generator=generator))] += 1
    assert counts.sum() == 1200
    assert (counts[:5] - 120).abs().max() < 45
    assert (counts[5:] - 200).abs().max() < 50


def test_a_balance_of_ones_own_sees_one_share_at_a_time() -> None:
    seen: list[int] = []

    def one_group(targets: torch.Tensor) -> torch.Tensor:
        seen.append(len(targets))
        return torch.zeros_like(targets)

    kept(2, balance=one_group, priority=torch.arange(8.0))
    assert seen == [5, 3]


def test_a_priority_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="each of 8 samples, got \\[3\\]"):
        kept(2, balance=None, priority=torch.arange(3.0))
