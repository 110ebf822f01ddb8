"""The description of a benchmark, and the one function that makes its stream."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from corestream.errors import ConfigError
from corestream.streams.request import Request
from corestream.streams.stream import Stream


@dataclass(frozen=True)
class Benchmark:
    """A name, a line for lists, the function that builds the stream, and what may be asked of it.

    `options` maps an option's name to its allowed values, the default first; a number in their place is the
    default of a free positive number.
    """

    name: str
    summary: str
    build: Callable[[Request], Stream] = field(repr=False)
    datasets: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ("domain",)
    options: Mapping[str, tuple[str, ...] | float] = field(default_factory=dict)

    def checked_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given options over the defaults; a wrong one is an error that lists the right ones."""
        unknown = sorted(set(given) - set(self.options))
        if unknown:
            allowed = ", ".join(self.options) or "none"
            raise ConfigError(f"{self.name} has no option {unknown[0]!r}; its options: {allowed}")
        return {name: _checked(name, given.get(name), allowed) for name, allowed in self.options.items()}

    def checked_scenario(self, scenario: str | None) -> str:
        if scenario is None:
            return self.scenarios[0]
        if scenario not in self.scenarios:
            raise ConfigError(f"scenario={scenario!r}: {self.name} has {' and '.join(self.scenarios)}")
        return scenario


def _checked(name: str, value: Any, allowed: tuple[str, ...] | float) -> Any:
    if isinstance(allowed, tuple):
        if value is None:
            return allowed[0]
        if value not in allowed:
            raise ConfigError(f"{name}={value!r}: expected one of {', '.join(allowed)}")
        return value
    if value is None:
        return allowed
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigError(f"{name}={value!r}: expected a positive number, such as {allowed}")
    if isinstance(allowed, int) and int(value) != value:
        raise ConfigError(f"{name}={value!r}: expected a whole number, such as {allowed}")
    return type(allowed)(value)
