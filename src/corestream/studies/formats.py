"""The formats of a table: the terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from corestream.studies.files import write_text
from corestream.studies.layout import Grid, Word, grids
from corestream.studies.tables import Table, Verdict

MARKS: dict[Verdict, tuple[str, str]] = {
    "within": ("✓", "green"),
    "within rounding": ("≈", "green"),
    "better": ("▲", "bright_green"),
    "miss": ("✗", "red"),
    "not comparable": ("~", "yellow"),
}
LEGEND = "✓ within the paper's mean ± 2 (own sd + paper's sd)   ≈ or by its rounding   ▲ better   ✗ miss   ~ not comparable"

WHOLE_LABELS = 24  # letters; longer ones may be broken
CSV_COLUMNS = [
    *("row", "condition", "metric", "mean", "sd", "runs", "expected", "diverged", "failed"),
    *("paper_mean", "paper_sd", "verdict", "not_comparable"),
]


def to_terminal(table: Table) -> RenderableType:
    """Rich tables, one below the other, with a legend where verdicts are given."""
    parts: list[RenderableType] = [grid_to_terminal(grid) for grid in grids(table)]
    if table.has_paper_numbers:
        parts.append(Text(LEGEND, style="dim"))
    return Group(*parts)


def to_markdown(table: Table) -> str:
    return "\n".join(grid_to_markdown(grid) for grid in grids(table))


def to_latex(table: Table) -> str:
    return "\n".join([LATEX_PACKAGES, *(_latex(grid) for grid in grids(table))])


def to_csv(table: Table) -> str:
    """One line per row, condition and metric."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for (row, condition), cell in table.cells.items():
        for metric in table.metrics:
            own, paper = cell.measured.get(metric), cell.paper.get(metric)
            if own is None and paper is None and cell.expected == cell.done:
                continue
            writer.writerow(
                [row, condition, metric]
                + ([own.mean, own.sd] if own else ["", ""])
                + [cell.done, cell.expected, cell.diverged, cell.failed]
                + ([paper.mean, paper.sd] if paper else ["", ""])
                + [cell.verdict(metric), cell.not_comparable]
            )
    return out.getvalue()


def write_table(table: Table, folder: Path) -> list[Path]:
    """NAME.md, NAME.csv and NAME.tex in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"md": to_markdown(table), "csv": to_csv(table), "tex": to_latex(table)}
    paths = []
    for suffix, text in texts.items():
        path = folder / f"{table.name}.{suffix}"
        write_text(path, text)
        paths.append(path)
    return paths


def grid_to_terminal(grid: Grid) -> RenderableType:
    return _Fitting(grid)


@dataclass(frozen=True)
class _Fitting:
    """A grid within the width there is: in columns, or one cell below the other where not even its words fit. Rich would cut it off."""

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = 3 * len(self.grid.header) + 1  # and the spaces beside them
        widths = _widths(self.grid, options.max_width - lines)
        yield from _stacked(self.grid) if widths is None else [_table(self.grid, widths)]


def _widths(grid: Grid, room: int) -> list[int] | None:
    """The columns' widths: what they need, else as even as it can be without breaking a word, or at least none of a cell; None where
    not even that fits."""
    columns = [[_rich_word(row[place]).plain for row in grid.rows] for place in range(len(grid.header))]
    whole = [max(map(len, (name, *texts))) for name, texts in zip(grid.header, columns, strict=True)]
    labels = max(map(len, columns[0]), default=0)
    for names in (grid.header, [""] * len(columns)):
        least = [_longest_word([name, *texts]) for name, texts in zip(names, columns, strict=True)]
        least[0] = max(least[0], labels if labels <= WHOLE_LABELS else 0)
        for most in range(max(whole), 0, -1):
            widths = [max(low, min(most, high)) for low, high in zip(least, whole, strict=True)]
            if sum(widths) <= room:
                return widths
    return None


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=1)


def _stacked(grid: Grid) -> Iterator[Text]:
    yield Text(grid.title, style="italic")
    for label, *words in grid.rows:
        yield Text(label.text, style="bold")
        for name, word in zip(grid.header[1:], words, strict=True):
            yield Text.assemble(f"  {name}  ", _rich_word(word))
    yield from map(Text, grid.notes)


def _table(grid: Grid, widths: Sequence[int]) -> RichTable:
    # as Text: names of folders may hold what looks like markup
    caption = Text("\n".join(grid.notes)) if grid.notes else None
    table = RichTable(title=Text(grid.title), title_justify="left", caption=caption)
    for name, width in zip(grid.header, widths, strict=True):
        first = not table.columns
        table.add_column(
            Text(name),
            justify="left" if first else "right",
            style="dim" if name == "paper" else "",
            width=width,
            overflow="fold",
        )
    for row in grid.rows:
        table.add_row(*(_rich_word(word) for word in row))
    return table


def _rich_word(word: Word) -> Text:
    if not word.verdict:
        return Text(word.text)
    mark, style = MARKS[word.verdict]
    return Text.assemble(word.text, " ", (mark, style))


def grid_to_markdown(grid: Grid) -> str:
    rows = [[f"{w.text} ({w.verdict})" if w.verdict else w.text for w in row] for row in grid.rows]
    rule = ["---", *["---:"] * (len(grid.header) - 1)]
    head = [f"**{grid.title}**", "", markdown_line(grid.header), markdown_line(rule)]
    lines = [*head, *map(markdown_line, rows), ""]
    return "\n".join(lines + [f"{note}\n" for note in grid.notes])


def markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


LATEX_MARKS: dict[Verdict, str] = {
    "within": r"$\checkmark$",
    "within rounding": r"$\approx$",
    "better": r"$\blacktriangle$",
    "miss": r"$\times$",
    "not comparable": r"$\sim$",
}
LATEX_PACKAGES = "% needs \\usepackage{booktabs,amssymb}"
LATEX_CHARACTERS = str.maketrans(
    {character: f"\\{character}" for character in "&%_#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"[": "{[}", "]": "{]}"}  # a row that begins with [ would be read as an option of the \\ before it
    | {"±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": r"\textendash{}"}
    | {"λ": r"$\lambda$", "τ": r"$\tau$", "α": r"$\alpha$"}
)


def _sentence(words: str) -> str:
    return words if words.endswith((".", ":")) else f"{words}."


def _latex(grid: Grid) -> str:
    def text(plain: str) -> str:
        return plain.translate(LATEX_CHARACTERS).replace("--", "-{}-")  # an option's hyphens, no dash

    def cell(word: Word) -> str:
        return f"{text(word.text)} {LATEX_MARKS[word.verdict]}" if word.verdict else text(word.text)

    lines = [
        f"\\begin{{table}}\n\\centering\n\\caption{{{text(' '.join(map(_sentence, (grid.title, *grid.notes))))}}}",
        f"\\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}\n\\toprule",
        " & ".join(text(name) for name in grid.header) + r" \\ \midrule",
        *(" & ".join(cell(word) for word in row) + r" \\" for row in grid.rows),
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n",
    ]
    return "\n".join(lines)
