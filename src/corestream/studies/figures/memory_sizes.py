"""Figure 5: accuracy over memory sizes."""

import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

from corestream.studies.design import row_name
from corestream.studies.figures.style import colour_of, legend_below, panels
from corestream.studies.tables import Cell, Table

LINE_LETTERS = 55  # that a panel has room for below its axis


def draw(table: Table) -> Figure:
    """One panel per condition: accuracy with error bars over the capacity J, one line per method and protocol, as far as a
    larger memory can be filled."""
    figure, axes = panels([f"{condition}\naverage accuracy, %" for condition in table.conditions])
    names = list(dict.fromkeys(_name(cell) for cell in table.cells.values() if cell.results))
    for panel, condition in zip(axes, table.conditions, strict=True):
        cells = [cell for (_, key), cell in table.cells.items() if key == condition and cell.done]
        ends = []
        for name in names:
            asked = sorted((cell for cell in cells if _name(cell) == name), key=_capacity)
            points = _without_repeats(asked)
            if len(points) < len(asked):
                ends.append(f"{_capacity(points[-1])} ({name})")
            if points:
                accuracy = [cell.measured["accuracy"] for cell in points]
                panel.errorbar(
                    [_capacity(cell) for cell in points],
                    [value.mean for value in accuracy],
                    [value.sd or 0.0 for value in accuracy],
                    color=colour_of(name, names),
                    label=name,
                    marker="o",
                    markersize=3,
                    capsize=2,
                )
        lines = ["samples in memory, J"]
        if ends:
            words = f"larger ones are not filled, and give the same runs: above {', '.join(ends)}"
            lines += textwrap.wrap(words, LINE_LETTERS)
        panel.set_xlabel("\n".join(lines), fontsize=8)
    legend_below(figure, axes[0])
    return figure


def _name(cell: Cell) -> str:
    config = cell.results[0].config
    return row_name(str(config["method"]), str(config.get("protocol", "paper")))


def _capacity(cell: Cell) -> int:
    return int(cell.results[0].config["settings"]["capacity"])


def _without_repeats(cells: Sequence[Cell]) -> list[Cell]:
    """Of cells of growing capacity, without those whose runs find what the ones before did: they cannot fill a larger memory."""
    different = list(cells[:1])
    for cell in cells[1:]:
        if _found(cell) != _found(different[-1]):
            different.append(cell)
    return different


def _found(cell: Cell) -> list[list[list[float | None]]]:
    return [result.matrix for result in cell.results if result.status == "done"]
