"""What the report page shows, made from results: charts, noise, classes and pictures per condition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from corestream.studies.charts import Line, bar, line_chart, matrix_chart
from corestream.studies.commands import command_of
from corestream.studies.config import RunConfig
from corestream.studies.grouping import condition_of, label_of
from corestream.studies.layout import plus_minus
from corestream.studies.learning_curves import average_over_tasks, first_task, lines_of, mean_matrix, spread
from corestream.studies.report_memory import (
    Classes,
    NoiseRow,
    Panel,
    classes_kept,
    noise_in_stream,
    noise_rows,
    picture_panels,
)
from corestream.studies.tables import Cell, Table

COLOURS = 16  # in the page's style sheet: eight, and the same with dashed lines


@dataclass(frozen=True)
class Bar:
    """A row of a small table: a method, its number, and the number as a bar."""

    name: str
    colour: int
    text: str
    bar: Markup


@dataclass(frozen=True)
class Section:
    """Everything about one condition."""

    condition: str
    colours: Mapping[str, int]  # of its rows
    average: Markup | None
    first: Markup | None
    forgetting: Sequence[Bar]
    matrices: Sequence[Panel]
    noise: Sequence[NoiseRow]
    noise_in_stream: str
    classes: Classes
    pictures: Sequence[Panel]


@dataclass(frozen=True)
class Again:
    """How to make a row again."""

    name: str
    commands: Sequence[str]
    config: str


def colours_of(table: Table) -> dict[str, int]:
    """OCS has colour 0, the others follow in the order of their rows; from the ninth on lines are dashed and dots are rings."""
    others = iter(1 + place % (COLOURS - 1) for place in range(len(table.rows)))
    return {row: 0 if row == "ocs" else next(others) for row in table.rows}


def section(
    table: Table, condition: str, colours: Mapping[str, int], *, data_dir: Path | None = None
) -> Section:
    cells = {row: table.cells[row, condition] for row in table.rows if (row, condition) in table.cells}
    return Section(
        condition=condition,
        colours={row: colours[row] for row in cells},
        average=_curves(cells, colours, average_over_tasks, f"average accuracy, {condition}"),
        first=_curves(cells, colours, first_task, f"first task's accuracy, {condition}"),
        forgetting=_forgetting(cells, colours),
        matrices=_matrices(cells, colours),
        noise=noise_rows(cells, colours),
        noise_in_stream=noise_in_stream(cells),
        classes=classes_kept(cells, colours, data_dir),
        pictures=picture_panels(cells, colours),
    )


def failures(table: Table) -> list[tuple[str, str]]:
    """Every run that is not in a mean, and why."""
    return [
        (f"{row}, {condition}, seed {result.seed}: {result.status}", result.note)
        for (row, condition), cell in table.cells.items()
        for result in cell.results
        if result.status != "done"
    ]


def name_of(config: RunConfig) -> str:
    """A run, named as those that are not in a mean."""
    plain = config.to_dict()
    return f"{label_of(plain)}, {condition_of(plain)}, seed {config.seed}"


def again(table: Table) -> list[Again]:
    """Per cell: a command for each seed, and the whole configuration of the first."""
    found = []
    for (row, condition), cell in table.cells.items():
        if cell.results:
            commands = [command_of(RunConfig.from_dict(one.config), one.threads) for one in cell.results]
            config = json.dumps(dict(cell.results[0].config), indent=1, sort_keys=True)
            found.append(Again(f"{row}, {condition}", commands, config))
    return found


def _curves(cells: Mapping[str, Cell], colours: Mapping[str, int], measure: Any, label: str) -> Markup | None:
    lines = []
    for row, cell in cells.items():
        if runs := lines_of(cell.results, measure):
            means, deviations = spread(runs)
            lines.append(Line(row, colours[row], means, deviations))
    return line_chart(lines, label=label) if lines else None


def _forgetting(cells: Mapping[str, Cell], colours: Mapping[str, int]) -> list[Bar]:
    found = {row: cell.measured["forgetting"] for row, cell in cells.items() if "forgetting" in cell.measured}
    most = max((measured.mean for measured in found.values()), default=0.0)
    return [
        Bar(
            row,
            colours[row],
            plus_minus(measured, "forgetting"),
            bar(measured.mean / most if most > 0 else 0.0, colour=colours[row]),
        )
        for row, measured in found.items()
    ]


def _matrices(cells: Mapping[str, Cell], colours: Mapping[str, int]) -> list[Panel]:
    found = {row: mean_matrix(cell.results) for row, cell in cells.items()}
    return [
        Panel(row, colours[row], "", matrix_chart(matrix, colour=colours[row], label=f"task by task, {row}"))
        for row, matrix in found.items()
        if matrix
    ]
