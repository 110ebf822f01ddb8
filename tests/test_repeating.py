"""Work done many times over."""

import torch

from corestream.repeating import repeat, repeating


def test_work_is_done_that_many_times() -> None:
    done: list[int] = []
    repeat(lambda: done.append(0), 4)
    assert len(done) == 4


def test_somebody_may_know_another_way_for_a_while() -> None:
    told: list[tuple[int, list[torch.Generator], bool]] = []
    done: list[int] = []
    generator = torch.Generator()
    with repeating(lambda work, times, generators, wait: told.append((times, generators, wait))):
        repeat(lambda: done.append(0), 3, generator, None)
        repeat(lambda: done.append(0), 5, wait=True)
    assert told == [(3, [generator], False), (5, [], True)]
    assert not done
    repeat(lambda: done.append(0), 2)
    assert len(done) == 2
