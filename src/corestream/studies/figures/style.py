"""What all figures share: colours, axes, the note on sampled files, and the two files each is saved as."""

import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from corestream.studies.files import write_atomically

# Okabe and Ito's colours, which colour-blind readers tell apart
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#b3a100")

# the methods of the paper's figures, in the order of those colours
METHODS = ("ocs", "uniform", "icarl", "stable-sgd", "gss", "er-mir", "bilevel")

NOTE_LETTERS = 17  # of a note in one inch


def colour_of(name: str, names: Sequence[str]) -> str:
    """A method's colour: the same in every figure for those of the paper's, for others a free one by their place among `names`."""
    if name in METHODS:
        return COLOURS[METHODS.index(name)]
    free = [colour for method, colour in zip(METHODS, COLOURS, strict=False) if method not in names]
    free += COLOURS[len(METHODS) :]
    others = [other for other in names if other not in METHODS]
    return free[others.index(name) % len(free)]


def panels(
    titles: Sequence[str], *, rows: int = 1, width: float = 3.6, height: float = 3.0
) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per title, row by row."""
    columns = -(-len(titles) // rows)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(len(titles))]
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title, fontsize=9)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25, linewidth=0.5)
    return figure, axes


def legend_below(figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(len(labels), 5), fontsize=8, frameon=False
        )


def save(figure: Figure, folder: Path, name: str, note: str = "") -> list[Path]:
    """NAME.png and NAME.svg; `note` stands on the figure, where its data need a word."""
    if note:
        lines = textwrap.fill(note, int(NOTE_LETTERS * figure.get_figwidth()))
        figure.suptitle(lines, fontsize=8, style="italic", color="#a00000")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with rc_context({"svg.hashsalt": name}):  # the same figure is the same file
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            drawn = BytesIO()
            figure.savefig(drawn, format=path.suffix[1:], dpi=160, metadata=metadata)
            write_atomically(path, drawn.getvalue())
    return paths
