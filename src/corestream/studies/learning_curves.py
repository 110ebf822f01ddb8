"""Lines over the tasks, out of the accuracies of runs."""

import math
import statistics
from collections.abc import Callable, Sequence

from corestream.studies.results import Result

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


def mean_matrix(results: Sequence[Result]) -> list[list[float | None]]:
    """a[t, i] in per cent for i ≤ t: the mean over the finished runs of a sequence, None where it was not measured."""
    matrices = [result.matrix for result in results if result.status == "done" and len(result.matrix) > 1]
    tasks = len(matrices[0]) if matrices else 0
    return [[_mean([matrix[t][i] for matrix in matrices]) for i in range(t + 1)] for t in range(tasks)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return 100 * statistics.fmean(known) if known else None


def lines_of(results: Sequence[Result], measure: Callable[[Matrix], list[float]]) -> list[list[float]]:
    """One line per finished run of a sequence; joint training has a single point and no line."""
    matrices = [result.matrix for result in results if result.status == "done"]
    return [measure(matrix) for matrix in matrices if len(matrix) > 1 and _measured_all_along(matrix)]


def _measured_all_along(matrix: Matrix) -> bool:
    return all(_known(row[:1]) for row in matrix)


def _known(row: Sequence[float | None]) -> list[float]:
    return [value for value in row if value is not None and not math.isnan(value)]
