"""Figure 5: accuracy over memory sizes."""

from matplotlib.figure import Figure

from corestream.studies.design import row_name
from corestream.studies.figures.style import colour_of, legend_below, panels
from corestream.studies.tables import Cell, Table


def draw(table: Table) -> Figure:
    """One panel per condition: accuracy with error bars over the capacity J, one line per method and protocol."""
    figure, axes = panels([f"{condition}\naverage accuracy, %" for condition in table.conditions])
    names = list(dict.fromkeys(_name(cell) for cell in table.cells.values() if cell.results))
    for panel, condition in zip(axes, table.conditions, strict=True):
        cells = [cell for (_, key), cell in table.cells.items() if key == condition and cell.done]
        for name in names:
            points = sorted((cell for cell in cells if _name(cell) == name), key=_capacity)
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
        panel.set_xlabel("samples in memory, J", fontsize=8)
    legend_below(figure, axes[0])
    return figure


def _name(cell: Cell) -> str:
    config = cell.results[0].config
    return row_name(str(config["method"]), str(config.get("protocol", "paper")))


def _capacity(cell: Cell) -> int:
    return int(cell.results[0].config["settings"]["capacity"])
