"""Figure 4: average accuracy and first-task accuracy over the tasks."""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from corestream.studies.figures.style import colour_of, legend_below, panels
from corestream.studies.learning_curves import average_over_tasks, first_task, lines_of, spread
from corestream.studies.tables import Table


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
