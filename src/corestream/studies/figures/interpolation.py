"""Figure 6: S and V weighted α and 1 − α."""

from matplotlib.figure import Figure

from corestream.studies.figures.style import COLOURS, legend_below, panels
from corestream.studies.tables import Table


def draw(table: Table) -> Figure:
    """One panel per condition: accuracy over α with A and without it, an arrow at the best of each."""
    figure, axes = panels([f"{condition}\naverage accuracy, %" for condition in table.conditions])
    for panel, condition in zip(axes, table.conditions, strict=True):
        cells = [cell for (_, key), cell in table.cells.items() if key == condition and cell.done]
        for affinity, colour in ((1.0, COLOURS[0]), (0.0, COLOURS[1])):
            points = []
            for cell in cells:
                similarity, _, weight = cell.results[0].config["settings"]["weights"]
                if weight == affinity:
                    points.append((similarity, cell.measured["accuracy"]))
            if not points:
                continue
            points.sort(key=lambda point: point[0])
            shares = [share for share, _ in points]
            means = [value.mean for _, value in points]
            label = "S, V and A" if affinity else "S and V alone"
            deviations = [value.sd or 0.0 for _, value in points]
            panel.errorbar(
                shares, means, deviations, color=colour, label=label, marker="o", markersize=3, capsize=2
            )
            best = means.index(max(means))
            panel.annotate(
                "",
                (shares[best], means[best]),
                xytext=(0, 18),
                textcoords="offset points",
                arrowprops={"arrowstyle": "->", "color": colour},
            )
        panel.set_xlabel("α (α·S + (1 − α)·V)", fontsize=8)
        panel.margins(y=0.2)
    legend_below(figure, axes[0])
    return figure
