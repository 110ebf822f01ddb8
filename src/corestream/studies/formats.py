"""The formats of a table: the terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from corestream.studies.layout import Grid, Word, grids
from corestream.studies.tables import Table, Verdict

MARKS: dict[Verdict, tuple[str, str]] = {
    "within": ("✓", "green"),
    "better": ("▲", "bright_green"),
    "miss": ("✗", "red"),
    "not comparable": ("~", "yellow"),
}
LEGEND = "✓ within the paper's mean ± 2 (own sd + paper's sd)   ▲ better   ✗ miss   ~ not comparable"

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
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def grid_to_terminal(grid: Grid) -> RichTable:
    # as Text: names of folders may hold what looks like markup
    caption = Text("\n".join(grid.notes)) if grid.notes else None
    table = RichTable(title=Text(grid.title), title_justify="left", caption=caption)
    labels = max((len(row[0].text) for row in grid.rows), default=0)
    for column, name in enumerate(grid.header):
        table.add_column(
            Text(name),
            justify="left" if column == 0 else "right",
            style="dim" if name == "paper" else "",
            min_width=min(labels, WHOLE_LABELS) if column == 0 else None,
            overflow="fold",  # nothing is left out in a narrow terminal
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


def _latex(grid: Grid) -> str:
    def text(plain: str) -> str:
        return plain.translate(LATEX_CHARACTERS).replace("--", "-{}-")  # an option's hyphens, no dash

    def cell(word: Word) -> str:
        return f"{text(word.text)} {LATEX_MARKS[word.verdict]}" if word.verdict else text(word.text)

    lines = [
        f"\\begin{{table}}\n\\centering\n\\caption{{{text(' '.join((grid.title, *grid.notes)))}}}",
        f"\\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}\n\\toprule",
        " & ".join(text(name) for name in grid.header) + r" \\ \midrule",
        *(" & ".join(cell(word) for word in row) + r" \\" for row in grid.rows),
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n",
    ]
    return "\n".join(lines)
