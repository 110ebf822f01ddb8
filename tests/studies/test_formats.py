import csv
import io
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from corestream.studies.catalogue import STUDIES
from corestream.studies.formats import MARKS, to_csv, to_latex, to_markdown, to_terminal, write_table
from corestream.studies.layout import grids
from corestream.studies.paper_numbers import Number
from corestream.studies.plan import make_plan
from corestream.studies.results import Result
from corestream.studies.tables import Cell, Measured, Table

METRICS = ("accuracy", "forgetting")


@pytest.fixture
def compared() -> Table:
    ocs = Cell(
        {"accuracy": Measured(82.14, 0.21, 5), "forgetting": Measured(0.2, 0.0, 5)},
        {"accuracy": Number(82.5, 0.32), "forgetting": Number(0.08, 0.0)},
        expected=5,
        done=5,
    )
    uniform = Cell({}, {"accuracy": Number(79.9, 1.32)}, expected=5, done=3, diverged=1)
    cells = {("ocs", "rotated-mnist"): ocs, ("uniform", "rotated-mnist"): uniform}
    return Table("table1", "Table 1", ("ocs", "uniform"), ("rotated-mnist",), METRICS, cells)


@pytest.fixture
def own() -> Table:
    cell = Cell(
        {"accuracy": Measured(81.7, 1.3, 3), "forgetting": Measured(0.11, 0.0, 3)}, expected=3, done=3
    )
    return Table("demo", "Rotated Digits", ("ocs",), ("a", "a --imbalanced"), METRICS, {("ocs", "a"): cell})


def printed(table: Table) -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(to_terminal(table))
    return console.export_text()


def test_the_terminal_shows_ours_the_papers_and_the_verdict(compared: Table) -> None:
    text = printed(compared)
    assert "82.1 ± 0.2 ✓" in text
    assert "82.5 ± 0.3" in text
    assert "0.20 ± 0.00 ✗" in text
    assert "3/5 (1 diverged, 1 missing)" in text


def test_a_narrow_terminal_leaves_nothing_out() -> None:
    cell = Cell(
        {
            "accuracy": Measured(37.06, 0.69, 5),
            "forgetting": Measured(0.04, 0.01, 5),
            "usage": Measured(100, None, 5),
        },
        {"accuracy": Number(37.06, 0.69), "forgetting": Number(0.04, 0.01), "usage": Number(100.0)},
        expected=5,
        done=5,
    )
    row, metrics = "[1,2,3,4]", (*METRICS, "usage")
    console = Console(width=60, file=io.StringIO(), record=True)
    console.print(to_terminal(Table("t", "T", (row,), ("b",), metrics, {(row, "b"): cell})))
    text = console.export_text()
    assert row in text
    assert "…" not in text


def test_a_condition_whose_name_is_not_valid_in_the_locale_is_written(own: Table, tmp_path: Path) -> None:
    for path in write_table(replace(own, conditions=("a", "folder:/\udcff")), tmp_path):
        path.read_text(encoding="utf-8")
    assert "folder:/?" in (tmp_path / "demo.md").read_text(encoding="utf-8")


def three_metrics(done: int) -> Table:
    measured = {"forgetting": Measured(0.04, 0.01, 5), "usage": Measured(100, None, 5)}
    paper = {"accuracy": Number(37.06, 0.69), "forgetting": Number(0.04, 0.01), "usage": Number(100.0)}
    rows = {"finetune": 36.0, "stable-sgd": 37.1, "uniform:ocs-schedule": 41.5}
    cells = {
        (row, "b"): Cell({"accuracy": Measured(mean, 0.69, 5), **measured}, paper, expected=5, done=done)
        for row, mean in rows.items()
    }
    return Table("table1", "Table 1", tuple(rows), ("b",), (*METRICS, "usage"), cells)


def columns_of(text: str, count: int) -> list[str]:
    """What stands below the headings, column by column, without spaces."""
    lines = [line.split("│")[1:-1] for line in text.splitlines() if "│" in line]
    assert {len(line) for line in lines} <= {count}
    return ["".join("".join(line[place] for line in lines).split()) for place in range(count)]


@pytest.mark.parametrize("width", [120, 80, 60, 40, 20])
def test_every_cell_is_there_at_every_width(width: int) -> None:
    table = three_metrics(done=4)
    (grid,) = grids(table)
    cells = [
        [(word.text + MARKS.get(word.verdict, ("",))[0]).replace(" ", "") for word in row]
        for row in grid.rows
    ]
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(to_terminal(table))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    if width >= 80:
        assert columns_of(text, len(grid.header)) == ["".join(column) for column in zip(*cells, strict=True)]
    else:
        rows = [
            label
            + "".join(name.replace(" ", "") + cell for name, cell in zip(grid.header[1:], row, strict=True))
            for label, *row in cells
        ]
        assert "".join(rows) in "".join(text.split())


def test_a_wide_terminal_has_a_line_for_each_row() -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(to_terminal(three_metrics(done=5)))
    lines = console.export_text().splitlines()
    assert [line.rstrip() for line in lines[:6]] == [
        "Table 1: b",
        "┏━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━┓",
        "┃ Method               ┃  Accuracy, % ┃      paper ┃    Forgetting ┃       paper ┃ Gradients used, % ┃ paper ┃ runs ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━┩",
        "│ finetune             │ 36.0 ± 0.7 ✓ │ 37.1 ± 0.7 │ 0.04 ± 0.01 ✓ │ 0.04 ± 0.01 │             100.0 │ 100.0 │  5/5 │",
        "│ stable-sgd           │ 37.1 ± 0.7 ✓ │ 37.1 ± 0.7 │ 0.04 ± 0.01 ✓ │ 0.04 ± 0.01 │             100.0 │ 100.0 │  5/5 │",
    ]


def test_markdown_spells_the_verdict(compared: Table) -> None:
    text = to_markdown(compared)
    assert "| ocs | 82.1 ± 0.2 (within) | 82.5 ± 0.3 | 0.20 ± 0.00 (miss) | 0.08 ± 0.00 | 5/5 |" in text


def test_a_table_without_the_paper_is_one_matrix(own: Table) -> None:
    assert "| ocs | 81.7 ± 1.3, F 0.11 | – |" in to_markdown(own)
    assert "✓" not in printed(own)


def test_latex_escapes_what_latex_would_read(compared: Table) -> None:
    title = "50 % of a_b & c"
    text = to_latex(Table("t", title, compared.rows, compared.conditions, METRICS, compared.cells))
    assert r"50 \% of a\_b \& c" in text
    assert r"rotated-mnist.}" in text  # the caption is made of sentences
    assert r"82.1 $\pm$ 0.2 $\checkmark$" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def latex_of(study: str) -> str:
    """The study's table with every cell filled, its notes full of what LaTeX reads as something else."""
    plan = make_plan(STUDIES[study], range(2))
    found = {"average_accuracy": 0.8, "forgetting": 0.1, "matrix": []}
    note = r"50 % of a_b & {c} #1 $2 ~ ^ C:\d × − – [e]"
    results = [Result(c.to_dict(), found, files_note=note, seconds=1.0) for c in plan.all_configs()]
    return to_latex(plan.table(results))


@pytest.mark.parametrize("study", STUDIES)
def test_latex_rows_are_whole_and_start_with_no_option(study: str) -> None:
    text = latex_of(study)
    for tabular in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        columns = len(re.match(r"\{(l?r*)\}", tabular)[1])
        lines = re.findall(r"^.*\\\\", tabular, re.MULTILINE)
        assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {columns}
        assert not re.search(r"(\\\\|rule)\s*[\[*]", tabular)
    assert "---" not in text
    assert text.replace(r"\{", "").replace(r"\}", "").count("{") == text.replace(r"\{", "").replace(
        r"\}", ""
    ).count("}")
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    assert text.isascii()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("study", STUDIES)
def test_latex_is_set_by_latex(study: str, tmp_path: Path) -> None:
    page = "\n".join(
        [r"\documentclass{article}\usepackage{booktabs,amssymb}\begin{document}", latex_of(study)]
    )
    (tmp_path / "t.tex").write_text(page + "\n\\end{document}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_csv_has_one_line_per_number(compared: Table) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(compared))))
    first = lines[0]
    assert (first["row"], first["metric"], first["verdict"]) == ("ocs", "accuracy", "within")
    assert float(first["mean"]) == pytest.approx(82.14)
    assert [line["diverged"] for line in lines if line["row"] == "uniform"] == ["1", "1"]


def test_three_files_are_written(compared: Table, tmp_path: Path) -> None:
    names = {path.name for path in write_table(compared, tmp_path / "new")}
    assert names == {"table1.md", "table1.csv", "table1.tex"}


def test_a_full_disk_leaves_the_old_table_and_is_told_with_its_path(
    compared: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_text() for path in write_table(compared, tmp_path)}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*table1\.md"):
        write_table(replace(compared, title="Another"), tmp_path)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    name = "folder:p[/q] [red]"
    cell = Cell(measured={"accuracy": Measured(50.0, 1.0, 2)}, expected=2, done=2)
    table = Table("t", name, (name,), (name,), ("accuracy",), {(name, name): cell})
    console = Console(file=io.StringIO(), width=120)
    console.print(to_terminal(table))
    assert console.file.getvalue().count(name) >= 2  # type: ignore[attr-defined]
