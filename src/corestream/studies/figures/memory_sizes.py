"""Figure 5: accuracy over memory sizes."""

from matplotlib.figure import Figure

from corestream.studies.figures.style import colour_of, legend_below, panels
from corestream.studies.tables import Cell, Table


def draw(table: Table) -> Figure:
    """One panel per condition: accuracy with error bars over the capacity J, one line per method."""
    figure, axes = panels([f"{condition}\naverage accuracy, %" for condition in table.conditions])
    methods = list(
        dict.fromkeys(str(cell.results[0].config["method"]) for cell in table.cells.values() if cell.results)
    )
    for panel, condition in zip(axes, table.conditions, strict=True):
        cells = [cell for (_, key), cell in table.cells.items() if key == condition and cell.done]
        for method in methods:
            points = sorted(
                (capacity(cell), cell) for cell in cells if cell.results[0].config["method"] == method
            )
            if points:
                accuracy = [cell.measured["accuracy"] for _, cell in points]
                panel.errorbar(
                    [size for size, _ in points],
                    [value.mean for value in accuracy],
                    [value.sd or 0.0 for value in accuracy],
                    color=colour_of(method, methods),
                    label=method,
                    marker="o",
                    markersize=3,
                    capsize=2,
                )
        panel.set_xlabel("samples in memory, J", fontsize=8)
    legend_below(figure, axes[0])
    return figure


def capacity(cell: Cell) -> int:
    return int(cell.results[0].config["settings"]["capacity"])
