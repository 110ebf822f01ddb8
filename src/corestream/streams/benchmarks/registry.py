"""The description of a benchmark: its name, its function, and what may be asked of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from corestream.errors import ConfigError
from corestream.streams.request import Request
from corestream.streams.stream import Stream


class Choice:
    """An option with a few named values, the default first."""

    def __init__(self, *values: str) -> None:
        self.values = values
        self.default = values[0]

    def check(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.values:
            raise ConfigError(f"{name}={value!r}: expected one of {', '.join(self.values)}")
        return value


@dataclass(frozen=True)
class Number:
    """An option that is a positive number; `None` leaves it to the benchmark."""

    default: float | None
    whole: bool = False
    most: float = float("inf")

    def check(self, name: str, value: Any) -> float | None:
        if value is None and self.default is None:
            return None
        right_kind = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        if not right_kind or not 0 < value <= self.most or value == float("inf"):
            kind = "a positive whole number" if self.whole else "a positive number"
            raise ConfigError(
                f"{name}={value!r}: expected {kind}"
                + (f" of at most {self.most:g}" if self.most < 1e9 else "")
            )
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark by name; `datasets` are what it reads, the first of `scenarios` is the default."""

    name: str
    summary: str
    build: Callable[[Request], Stream] = field(repr=False)
    datasets: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ("domain",)
    options: Mapping[str, Choice | Number] = field(default_factory=dict, repr=False)

    def checked_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given options over the defaults; a wrong one is an error that lists the right ones."""
        unknown = sorted(set(given) - set(self.options))
        if unknown:
            raise ConfigError(
                f"{self.name} has no option {unknown[0]!r}; its options: {', '.join(self.options)}"
            )
        return {
            name: option.check(name, given[name]) if name in given else option.default
            for name, option in self.options.items()
        }

    def checked_scenario(self, scenario: str | None) -> str:
        if scenario is None:
            return self.scenarios[0]
        if scenario not in self.scenarios:
            raise ConfigError(f"scenario={scenario!r}: {self.name} has {' and '.join(self.scenarios)}")
        return scenario
