"""docs/RESULTS.md: every table for which there are results, row by row, with the command that makes the row again."""

from collections.abc import Iterator, Sequence

from corestream.studies.catalogue import STUDIES
from corestream.studies.commands import row_command
from corestream.studies.config import RunConfig
from corestream.studies.layout import HEADINGS, plus_minus
from corestream.studies.plan import make_plan
from corestream.studies.results import Result
from corestream.studies.tables import Cell, Table

HEAD = """# Results

Written by `corestream paper ledger` from the runs kept under `results/`. Accuracy in per cent, mean ± sample standard
deviation over the seeds. **within**: inside the paper's mean ± 2 (own sd + paper's sd); **better** and **miss**: outside
of it; **not comparable**: the reason stands below the table. Time is that of one run.
"""


def results_page(results: Sequence[Result], seeds: int = 5) -> str:
    """The page's Markdown; studies without any result are left out."""
    parts = [HEAD]
    for study in STUDIES.values():
        if study.kind != "table":
            continue
        table = make_plan(study, range(seeds)).table(results)
        if any(cell.results for cell in table.cells.values()):
            parts.append(f"## {table.title}\n")
            parts += _sections(table)
    return "\n".join(parts)


def _sections(table: Table) -> Iterator[str]:
    for condition in table.conditions:
        cells = {row: table.cells[row, condition] for row in table.rows}
        shown = {row: cell for row, cell in cells.items() if cell.results}
        if not shown:
            continue
        header = ["Method"]
        for metric in table.metrics:
            header += [HEADINGS[metric], "paper", "verdict"]
        header += ["runs", "device", "time", "command"]
        yield f"### {condition}\n"
        yield _line(header)
        yield _line(["---"] * len(header))
        for row, cell in shown.items():
            yield _line(_words(row, cell, table.metrics))
        reasons = sorted({cell.not_comparable for cell in shown.values() if cell.not_comparable})
        yield "\n" + "".join(f"Not comparable with the paper: {reason}.\n" for reason in reasons)


def _words(row: str, cell: Cell, metrics: Sequence[str]) -> list[str]:
    words = [row]
    for metric in metrics:
        own, paper = cell.measured.get(metric), cell.paper.get(metric)
        words += [plus_minus(own, metric), plus_minus(paper, metric), cell.verdict(metric)]
    config = RunConfig.from_dict(cell.results[0].config)
    devices = ", ".join(sorted({result.device for result in cell.results if result.device}))
    runs = f"{cell.done}" + (f" ({cell.holes})" if cell.holes else "")
    return [*words, runs, devices, _time(cell), f"`{row_command(config, cell.expected)}`"]


def _time(cell: Cell) -> str:
    hours = cell.measured.get("hours")
    if hours is None:
        return ""
    seconds = 3600 * hours.mean
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def _line(words: Sequence[str]) -> str:
    return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |"
