"""Figure 7: pictures of what each method keeps in its memory."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from corestream.studies.contact_sheet import contact_sheet


def draw(kept: Mapping[tuple[str, str], Tensor], rows: Sequence[str], conditions: Sequence[str]) -> Figure:
    """A square of random kept pictures for each method (across) and condition (down)."""
    figure = Figure(figsize=(2.4 * len(rows), 2.6 * len(conditions)), layout="constrained")
    for place, (condition, row) in enumerate((c, r) for c in conditions for r in rows):
        panel = figure.add_subplot(len(conditions), len(rows), place + 1)
        panel.set_axis_off()
        panel.set_title(f"{row}\n{condition}", fontsize=8)
        pictures = kept.get((row, condition))
        if pictures is not None:
            panel.imshow(contact_sheet(pictures), cmap="gray", vmin=0, vmax=1)
    return figure
