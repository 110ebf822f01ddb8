"""Names and numbers in messages: a wrong name is answered with the nearest right one."""

import difflib
from collections.abc import Iterable

from corestream.errors import ConfigError


def check_name(kind: str, given: str, allowed: Iterable[str], *, hint: str = "") -> str:
    """The name itself where it is allowed; otherwise a ConfigError with the nearest one and all of them."""
    names = list(allowed)
    if given in names:
        return given
    raise ConfigError(f"unknown {kind} {given!r}; {nearest(given, names)}known are {', '.join(names)}{hint}")


def nearest(given: str, names: Iterable[str]) -> str:
    """'did you mean X? ' where a name is close enough to be meant, else nothing."""
    close = difflib.get_close_matches(given.lower(), list(names), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}? " if close else ""


def counted(number: int, one: str, several: str = "") -> str:
    """`1 run`, `2 runs`; `several` where an s is not enough."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def first_tasks(number: int) -> str:
    return "first task" if number == 1 else f"first {number} tasks"


def in_short(names: Iterable[str], most: int = 6) -> str:
    """The first of many names, and how many more there are."""
    names = list(names)
    rest = len(names) - most
    return ", ".join(names) if rest < 2 else f"{', '.join(names[:most])} and {rest} others"
