"""docs/RESULTS.md: every table for which there are results, row by row, with the command that makes the row again."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from corestream.errors import RunError
from corestream.studies.catalogue import MEASURED, STUDIES
from corestream.studies.commands import command_of, row_command
from corestream.studies.config import RunConfig
from corestream.studies.design import Study
from corestream.studies.figures.style import save
from corestream.studies.files import write_text
from corestream.studies.formats import markdown_line
from corestream.studies.illustrate import illustrate, note_on
from corestream.studies.layout import HEADINGS, plus_minus
from corestream.studies.plan import RunKey, identity, make_plan, run_key
from corestream.studies.results import Result, read_results
from corestream.studies.search import search_sections, settings_sections
from corestream.studies.tables import Cell, Table, make_cell

HEAD = """# Results

Written by `corestream paper ledger` from the runs kept under `results/`. Accuracy in per cent, mean ± sample standard
deviation over the seeds. **within**: inside the paper's mean ± 2 (own sd + paper's sd); **within rounding**: outside of it, and inside for
numbers that the paper would print as it does ("0.13 ± 0.00" may be 0.134 ± 0.004); **better** and **miss**: outside of both, ours not
rounded; **not comparable**: the reason stands below the table. Time is that of one run, on the device that most of a row's were made on.
"""


def write_results_page(kept: Path, out: Path, seeds: int = 5) -> Path:
    """OUT/RESULTS.md and OUT/figures/ from the results kept under a folder.

    A file notes/NAME.md beside the results stands below the heading of study NAME, notes/introduction.md at the top:
    what was tried, and why a number misses.
    """
    results = read_results(kept)
    if not results:
        raise RunError(
            f"no result is kept in {kept}; give the folder that --results named when runs were made"
        )
    figures = {**_found(out / "figures"), **_drawn(results, out / "figures", seeds)}
    out.mkdir(parents=True, exist_ok=True)
    path = out / "RESULTS.md"
    write_text(path, results_page(results, seeds, _notes(kept / "notes"), figures))
    return path


def results_page(
    results: Sequence[Result],
    seeds: int = 5,
    notes: Mapping[str, str] | None = None,
    figures: Mapping[str, str] | None = None,
) -> str:
    """The page's Markdown; studies without any result are left out."""
    notes, shown = notes or {}, set[RunKey]()
    parts = [HEAD, notes.get("introduction", "")]
    for study in STUDIES.values():
        table = make_plan(study, range(seeds)).table(results)
        shown |= {run_key(result.config) for cell in table.cells.values() for result in cell.results}
        if not study.is_figure and any(cell.results for cell in table.cells.values()):
            parts += [f"## {table.title}\n", notes.get(study.name, ""), *_parts(study, table)]
    parts += _others(
        [result for result in results if run_key(result.config) not in shown], notes.get("others", "")
    )
    if figures:
        parts.append("## Figures\n")
    for name, file in (figures or {}).items():
        title = STUDIES[name].title if name in STUDIES else MEASURED.get(name, name)
        parts += [f"### {title}\n", f"![{title}]({file})\n", notes.get(name, "")]
    return "\n".join(parts)


def _parts(study: Study, table: Table) -> Iterator[str]:
    if study.kind == "search":
        return search_sections(study, table)
    return settings_sections(study, table) if study.kind == "settings" else _sections(study, table)


def _notes(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}


def _drawn(results: Sequence[Result], folder: Path, seeds: int) -> dict[str, str]:
    """The figures that accuracies alone can draw, made anew."""
    figures = {}
    for study in STUDIES.values():
        if study.kind in ("curves", "memory sizes", "interpolation"):
            table = make_plan(study, range(seeds)).table(results)
            made = {row for (row, _), cell in table.cells.items() if cell.done}
            # a run has a curve of its own; settings side by side show something once there are runs of each
            if made and (study.kind == "curves" or made == set(table.rows)):
                save(illustrate(study.kind, table), folder, study.name, note_on(table))
                figures[study.name] = f"figures/{study.name}.png"
    return figures


def _found(folder: Path) -> dict[str, str]:
    """Figures that were put there: those that show a run's memory, or are measured without a study's runs."""
    return {path.stem: f"figures/{path.name}" for path in sorted(folder.glob("*.png"))}


def _sections(study: Study, table: Table) -> Iterator[str]:
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
        yield markdown_line(header)
        yield markdown_line(["---"] * len(header))
        for row, cell in shown.items():
            config = _usual_config(cell)
            command = row_command(config, cell.expected)
            if study.seeds:  # which only its own command has
                rows = f"{row},ocs" if "ratio" in table.metrics and row != "ocs" else row
                command = f"corestream paper {study.name} --methods {rows} --device {config.device}"
            yield markdown_line([*_words(row, cell, table.metrics), f"`{command}`"])
        reasons = sorted({cell.not_comparable for cell in shown.values() if cell.not_comparable})
        yield "\n" + "".join(f"Not comparable with the paper: {reason}.\n" for reason in reasons)


def _others(results: Sequence[Result], note: str) -> Iterator[str]:
    """What no table has: settings that were tried, or stood in a table before."""
    groups: dict[bytes, list[Result]] = {}
    for result in results:
        groups.setdefault(identity(result.config), []).append(result)
    if not groups:
        return
    header = ["Command", HEADINGS["accuracy"], HEADINGS["forgetting"], "runs", "device", "time"]
    yield "## Other runs that are kept\n"
    yield note
    yield markdown_line(header)
    yield markdown_line(["---"] * len(header))
    for group in groups.values():
        cell = make_cell(group)
        metrics = [plus_minus(cell.measured.get(metric), metric) for metric in ("accuracy", "forgetting")]
        yield markdown_line([_command(cell), *metrics, *_facts(cell)])
    yield ""


def _command(cell: Cell) -> str:
    config, seeds = _usual_config(cell), [result.seed for result in cell.results]
    if sorted(seeds) == list(range(len(seeds))):
        return f"`{row_command(config, len(seeds))}`"
    more = ", ".join(str(seed) for seed in seeds if seed != config.seed)
    return f"`{command_of(config)}`" + (f", and with seed {more}" if more else "")


def _words(row: str, cell: Cell, metrics: Sequence[str]) -> list[str]:
    words = [row]
    for metric in metrics:
        own, paper = cell.measured.get(metric), cell.paper.get(metric)
        words += [plus_minus(own, metric), plus_minus(paper, metric), cell.verdict(metric)]
    return [*words, *_facts(cell)]


def _facts(cell: Cell) -> list[str]:
    """How many runs, where, and how long each took."""
    devices = Counter(result.device for result in cell.results if result.device).most_common()
    words = [f"{name} ({count})" if len(devices) > 1 else name for name, count in devices]
    return [cell.runs, ", ".join(words), _time(cell)]


def _usual_config(cell: Cell) -> RunConfig:
    usual = [result for result in cell.results if result.device == cell.usual_device]
    return RunConfig.from_dict((usual or cell.results)[0].config)


def _time(cell: Cell) -> str:
    hours = cell.hours_on(cell.usual_device)
    if hours is None:
        return ""
    seconds = 3600 * hours.mean
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
