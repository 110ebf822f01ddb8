"""The numbers of the paper's tables, as data (`paper_numbers.toml`)."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

RESERVATION = "not_comparable"  # stands among a row's metrics
# half of the last digit that the paper prints of a mean and of its deviation: "0.13 ± 0.00" may be 0.134 ± 0.004
ROUNDING = {"accuracy": (0.05, 0.005), "forgetting": (0.005, 0.005)}


@dataclass(frozen=True)
class Number:
    """A mean as the paper prints it; `sd` is None where it prints none."""

    mean: float
    sd: float | None = None


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads((files(__package__) / "paper_numbers.toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    """The tables there are numbers for."""
    return list(_tables())


def conditions(table: str) -> list[str]:
    """The conditions of a table, spelled as on the command line: `rotated-mnist --noise 0.6`."""
    return list(_tables().get(table, {}))


def rows(table: str, condition: str) -> list[str]:
    """The rows the paper fills for one condition, in its order."""
    return list(_tables().get(table, {}).get(condition, {}))


def cell(table: str, condition: str, row: str) -> dict[str, Number]:
    """Metric → the paper's number; empty where the paper has none."""
    found = _tables().get(table, {}).get(condition, {}).get(row, {})
    return {metric: _number(value) for metric, value in found.items() if metric != RESERVATION}


def reservation(table: str, condition: str, row: str) -> str:
    """Why a number of the paper is of something else than its row says; empty where nothing is wrong."""
    found = _tables().get(table, {}).get(condition, {}).get(row, {})
    return str(found.get(RESERVATION, ""))


def hyperparameters(benchmark: str) -> dict[str, Any]:
    """The appendix's hyperparameters of one benchmark; empty where it names none."""
    return dict(_tables()["hyperparameters"].get(benchmark, {}))


def _number(value: float | list[float]) -> Number:
    return Number(*value) if isinstance(value, list) else Number(value)
