"""The numbers of the paper's tables, as data (`paper_numbers.toml`)."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

RESERVATION = "not_comparable"  # stands among a row's metrics


@dataclass(frozen=True)
class Number:
    """A mean as the paper prints it; `sd` is None where it prints none.

    `rounding` is what they may be off by, half of their last digits: "0.13 ± 0.00" may be 0.134 ± 0.004. `printed` has these digits.
    """

    mean: float
    sd: float | None = None
    rounding: tuple[float, float] = field(default=(0.0, 0.0), compare=False)
    printed: str = field(default="", compare=False)


@cache
def _tables() -> Mapping[str, Any]:
    text = (files(__package__) / "paper_numbers.toml").read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Decimal)  # with the digits that are printed


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
    found = _tables()["hyperparameters"].get(benchmark, {})
    return {name: _plain(value) for name, value in found.items()}


def _number(value: Decimal | int | list[Decimal | int]) -> Number:
    if not isinstance(value, list):
        return Number(float(value), None, (_half_digit(value), 0.0), str(value))
    mean, sd = value
    return Number(float(mean), float(sd), (_half_digit(mean), _half_digit(sd)), f"{mean} ± {sd}")


def _half_digit(printed: Decimal | int) -> float:
    return 0.5 * 10.0 ** int(Decimal(printed).as_tuple().exponent)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return float(value) if isinstance(value, Decimal) else value
