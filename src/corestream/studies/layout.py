"""From a table to grids of words: one per condition, or one for all where the paper has no numbers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from corestream.messages import counted
from corestream.studies.paper_numbers import Number
from corestream.studies.tables import Cell, Measured, Table, Verdict

DIGITS = {"accuracy": 1, "forgetting": 2, "hours": 3, "ratio": 2, "usage": 1}
HEADINGS = {
    "accuracy": "Accuracy, %",
    "forgetting": "Forgetting",
    "hours": "Time, h",
    "ratio": "Time / OCS",
    "usage": "Gradients used, %",
}
NONE = "–"


@dataclass(frozen=True)
class Word:
    """The text of one grid cell, with the verdict on it."""

    text: str
    verdict: Verdict = ""


@dataclass(frozen=True)
class Grid:
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Word, ...], ...]
    notes: tuple[str, ...] = ()


def grids(table: Table) -> list[Grid]:
    """Blocks with the paper's numbers where it has any, else one matrix of rows and conditions."""
    plain = table.metrics == ("accuracy", "forgetting") and not table.has_paper_numbers
    return [_matrix(table)] if plain else list(_blocks(table))


def plus_minus(number: Measured | Number | None, metric: str) -> str:
    """`82.1 ± 0.2`, or `82.1` where there is no deviation; the paper's numbers as it prints them."""
    if number is None:
        return NONE
    if isinstance(number, Number) and number.printed:
        return number.printed
    digits = DIGITS[metric]
    if metric == "hours" and number.mean > 0:  # short times too have three digits that count
        digits = max(digits, 2 - math.floor(math.log10(number.mean)))
    deviation = "" if number.sd is None else f" ± {number.sd:.{digits}f}"
    return _rounded(number.mean, digits) + deviation


def _rounded(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:.{digits}f}"  # just below zero is not −0


def _blocks(table: Table) -> Iterator[Grid]:
    for condition in table.conditions:
        cells = {row: table.cells.get((row, condition)) for row in table.rows}
        present = [(row, cell) for row, cell in cells.items() if cell is not None]
        if not present:
            continue
        header = ["Method"]
        for metric in table.metrics:
            header += [HEADINGS[metric], "paper"]
        yield Grid(
            title=f"{table.title}: {condition}",
            header=(*header, "runs"),
            rows=tuple(_block_row(row, cell, table.metrics) for row, cell in present),
            notes=_notes([cell for _, cell in present]),
        )


def _block_row(row: str, cell: Cell, metrics: tuple[str, ...]) -> tuple[Word, ...]:
    words = [Word(row)]
    for metric in metrics:
        words.append(Word(plus_minus(cell.measured.get(metric), metric), cell.verdict(metric)))
        words.append(Word(plus_minus(cell.paper.get(metric), metric)))
    return (*words, Word(_runs(cell)))


def _matrix(table: Table) -> Grid:
    uneven = len({cell.expected for cell in table.cells.values()}) > 1

    def word(row: str, condition: str) -> Word:
        cell = table.cells.get((row, condition))
        if cell is None:
            return Word(NONE)
        parts = [plus_minus(cell.measured.get("accuracy"), "accuracy")]
        if "forgetting" in cell.measured:
            parts.append(f"F {_rounded(cell.measured['forgetting'].mean, DIGITS['forgetting'])}")
        elif cell.done:
            parts.append(f"F {NONE}")
        runs = ", ".join(filter(None, [counted(cell.done, "run") if uneven else "", cell.holes]))
        return Word(", ".join(parts) + (f" ({runs})" if runs else ""))

    return Grid(
        title=f"{table.title} (accuracy in %, forgetting F)",
        header=("Method", *table.conditions),
        rows=tuple((Word(row), *(word(row, key) for key in table.conditions)) for row in table.rows),
        notes=_notes_by_column(table),
    )


def _notes_by_column(table: Table) -> tuple[str, ...]:
    """Each reason once, with the columns that it is for where these are not all."""
    columns: dict[str, dict[str, None]] = {}
    for (_, condition), cell in table.cells.items():
        if cell.not_comparable:
            columns.setdefault(cell.not_comparable, {})[condition] = None
    return tuple(
        reason if len(where) == len(table.conditions) else f"{', '.join(where)}: {reason}"
        for reason, where in columns.items()
    )


def _runs(cell: Cell) -> str:
    return f"{cell.done}/{cell.expected}" + (f" ({cell.holes})" if cell.holes else "")


def _notes(cells: list[Cell]) -> tuple[str, ...]:
    reasons = sorted({cell.not_comparable for cell in cells if cell.not_comparable})
    if not any(cell.paper for cell in cells):
        return tuple(reasons)
    return tuple(f"Not comparable with the paper: {reason}." for reason in reasons)
