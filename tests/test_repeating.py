"""Work done many times over."""

import torch

from corestream.repeating import repeat, repeating


def test_work_is_done_that_many_times() -> None:
    done: list[int] = []
    repeat(lambda: done.append(0), 4)
    assert len(done) == 4


def test_somebody_may_know_another_way_for_a_while() -> None:
    told: list[tuple[int, list[torch.Generator]]] = []
    done: list[int] = []
    generator = torch.Generator()
    with repeating(lambda work, times, generators: told.append((times, generators))):
        repeat(lambda: done.append(0), 3, generator, None)
    assert told == [(3, [generator])]
    assert not done
    repeat(lambda: done.append(0), 2)
    assert len(done) == 2
