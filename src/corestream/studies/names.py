"""A wrong name is answered with the nearest right one."""

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
