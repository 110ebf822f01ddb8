"""Work that is done many times over, in the same shapes and without a look at any value.

`repeat` is an ordinary loop, unless `repeating` gives it a faster way: on a card the work can be captured once and launched again and
again, some of it by another thread after `repeat` has returned. What follows may then not need the outcome yet, unless it asked to `wait`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Work = Callable[[], Any]
Repeat = Callable[[Work, int, list[torch.Generator], bool], None]


def _loop(work: Work, times: int, generators: list[torch.Generator], wait: bool) -> None:
    for _ in range(times):
        work()


_repeat: Repeat = _loop


def repeat(work: Work, times: int, *generators: torch.Generator | None, wait: bool = False) -> None:
    """Do the work that many times; `generators` are those it draws from, beside torch's own."""
    _repeat(work, times, [generator for generator in generators if generator is not None], wait)


@contextmanager
def repeating(how: Repeat) -> Iterator[None]:
    """Inside, work is repeated in this way."""
    global _repeat
    before, _repeat = _repeat, how
    try:
        yield
    finally:
        _repeat = before
