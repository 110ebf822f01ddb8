"""The description of a benchmark: its name, its function, and what may be asked of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from corestream.errors import ConfigError
from corestream.messages import nearest
from corestream.streams.request import Request
from corestream.streams.stream import Stream

SHARED = tuple(part.name for part in fields(Request) if part.name not in ("name", "options"))


class Choice:
    """An option with a few named values, the default first. `needs` is what a stream must be for it to mean anything: "imbalanced" or of
    some "noise"."""

    def __init__(self, *values: str, needs: str | None = None) -> None:
        self.values, self.needs = values, needs
        self.default = values[0]

    def check(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.values:
            raise ConfigError(f"{name}={value!r}: expected one of {', '.join(self.values)}")
        return value


@dataclass(frozen=True)
class Number:
    """An option that is a positive number; `None` leaves it to the benchmark.

    `only_with` is another option and the value of it without which this one means nothing; `needs` is a Choice's.
    """

    default: float | None
    whole: bool = False
    most: float = float("inf")
    only_with: tuple[str, str] | None = None
    needs: str | None = None

    def check(self, name: str, value: Any) -> float | None:
        if value is None and self.default is None:
            return None
        right_kind = isinstance(value, Integral if self.whole else Real) and not isinstance(value, bool)
        if not right_kind or not 0 < value <= self.most or value == float("inf"):
            kind = "a positive whole number" if self.whole else "a positive number"
            raise ConfigError(
                f"{name}={value!r}: expected {kind}"
                + (f" of at most {self.most:g}" if self.most < 1e9 else "")
            )
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark by name; `settings` are what all methods share on one of the user's own.

    The first of `scenarios` is the default, unless `usual_scenario` tells it from the options given.
    """

    name: str
    summary: str
    build: Callable[[Request], Stream] = field(repr=False)
    scenarios: tuple[str, ...] = ("domain",)
    options: Mapping[str, Choice | Number] = field(default_factory=dict, repr=False)
    usual_scenario: Callable[[Mapping[str, Any]], str] | None = field(default=None, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def checked_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given options over the defaults; a wrong one is an error that lists the right ones."""
        unknown = sorted(set(given) - set(self.options))
        if unknown:
            raise ConfigError(self._without(unknown[0]))
        checked = {
            name: option.check(name, given[name]) if name in given else option.default
            for name, option in self.options.items()
        }
        for name, (other, needed) in self.idle(checked).items():
            if checked[name] != self.options[name].default:  # a run's record holds the defaults of all
                raise ConfigError(
                    f"{name}={checked[name]}: only {other}={needed} takes it, and {other} is {checked[other]}"
                )
        return checked

    def refuse_idle(self, options: Mapping[str, Any], *, imbalanced: bool, noise: float) -> None:
        """An option that this stream would not look at is an error, and not another stream of the same samples."""
        here = {"imbalanced": imbalanced, "noise": noise > 0}
        for name, option in self.options.items():
            if option.needs is not None and not here[option.needs] and options[name] != option.default:
                raise ConfigError(
                    f"{name}={options[name]} means nothing without {option.needs}; give that too, or leave it out"
                )

    def _without(self, option: str) -> str:
        own, shared = ", ".join(self.options) or "none", ", ".join(SHARED)
        if option in SHARED:
            return f"{option} is not among the options of {self.name}'s own, {own}: every benchmark takes it; give it by itself"
        meant = nearest(option, [*SHARED, *self.options])
        return (
            f"{self.name} has no option {option!r}; {meant}its own are {own}; every benchmark takes {shared}"
        )

    def idle(self, options: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """The options that mean nothing beside the others, each with the option and the value it would need."""
        return {
            name: option.only_with
            for name, option in self.options.items()
            if isinstance(option, Number)
            and option.only_with is not None
            and options[option.only_with[0]] != option.only_with[1]
        }

    def checked_scenario(self, scenario: str | None, options: Mapping[str, Any] | None = None) -> str:
        if scenario is None:
            return self.usual_scenario(options or {}) if self.usual_scenario else self.scenarios[0]
        if scenario not in self.scenarios:
            raise ConfigError(f"scenario={scenario!r}: {self.name} has {' and '.join(self.scenarios)}")
        return scenario
