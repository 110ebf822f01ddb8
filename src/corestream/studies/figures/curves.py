"""Figure 4: average accuracy and first-task accuracy over the tasks."""

import math
import statistics
from collections.abc import Callable, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from corestream.studies.figures.style import colour_of, legend_below, panels
from corestream.studies.results import Result
from corestream.studies.tables import Table

Matrix = Sequence[Sequence[float | None]]


def average_over_tasks(matrix: Matrix) -> list[float]:
    """A_t in per cent after each task t: the mean over the tasks learned so far."""
    return [100 * statistics.fmean(_known(row[: t + 1])) for t, row in enumerate(matrix)]


def first_task(matrix: Matrix) -> list[float]:
    """a[t, 1] in per cent after each task t."""
    return [100 * _known(row[:1])[0] for row in matrix]


def spread(lines: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of several lines, point by point."""
    points = list(zip(*lines, strict=True))
    means = [statistics.fmean(point) for point in points]
    return means, [statistics.stdev(point) if len(point) > 1 else 0.0 for point in points]


def draw(table: Table) -> Figure:
    """Two panels per condition, one line per method with a band of one standard deviation."""
    measures = (("average accuracy", average_over_tasks), ("first task's accuracy", first_task))
    titles = [f"{condition}\n{name}, %" for name, _ in measures for condition in table.conditions]
    figure, axes = panels(titles, rows=2)
    places = [(condition, measure) for _, measure in measures for condition in table.conditions]
    for panel, (condition, measure) in zip(axes, places, strict=True):
        for row in table.rows:
            cell = table.cells.get((row, condition))
            lines = lines_of(cell.results, measure) if cell else []
            if not lines:
                continue
            means, deviations = spread(lines)
            tasks = range(1, len(means) + 1)
            colour = colour_of(row, table.rows)
            panel.plot(tasks, means, color=colour, label=row, linewidth=2 if row == "ocs" else 1.2)
            low = [mean - sd for mean, sd in zip(means, deviations, strict=True)]
            high = [mean + sd for mean, sd in zip(means, deviations, strict=True)]
            panel.fill_between(tasks, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.set_xlabel("tasks learned", fontsize=8)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axes[0])
    return figure


def lines_of(results: Sequence[Result], measure: Callable[[Matrix], list[float]]) -> list[list[float]]:
    """One line per finished run of a sequence; joint training has a single point and no line."""
    matrices = [result.matrix for result in results if result.status == "done"]
    return [measure(matrix) for matrix in matrices if len(matrix) > 1 and _measured_all_along(matrix)]


def _measured_all_along(matrix: Matrix) -> bool:
    return all(_known(row[:1]) for row in matrix)


def _known(row: Sequence[float | None]) -> list[float]:
    return [value for value in row if value is not None and not math.isnan(value)]
