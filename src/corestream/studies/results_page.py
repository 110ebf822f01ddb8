"""docs/RESULTS.md: every table for which there are results, row by row, with the command that makes the row again."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from corestream.errors import CorestreamWarning, RunError
from corestream.studies.catalogue import MEASURED, STUDIES
from corestream.studies.commands import command_of, row_command, unusual_choices
from corestream.studies.config import RunConfig
from corestream.studies.design import Study
from corestream.studies.figures.style import save
from corestream.studies.files import write_text
from corestream.studies.formats import markdown_line
from corestream.studies.grouping import one_each
from corestream.studies.illustrate import illustrate, note_on
from corestream.studies.layout import HEADINGS, plus_minus
from corestream.studies.plan import identity, make_plan, run_key
from corestream.studies.results import Result, read_results
from corestream.studies.search import search_sections, settings_sections
from corestream.studies.tables import Cell, Table, make_cell

HEAD = """# Results

What was measured here beside what the paper prints, for each of its tables and figures, with the command that makes a row again.
"""
READING = """
## How to read this page

Written by `corestream paper ledger` from the runs kept under `results/`. Accuracy in per cent, mean ± sample standard deviation (sd)
over the seeds; the paper's numbers have the digits that it prints.

The **window** is the paper's mean ± 2 (own sd + paper's sd). The verdicts:

- **within**: inside the window.
- **within rounding**: outside of it, and inside for numbers that the paper would print as it does ("0.13 ± 0.00" may be 0.134 ± 0.004).
- **better** and **miss**: outside both ranges, judged by our unrounded mean. Where accuracy misses, "better" for forgetting means little: a
  network at chance forgets nothing.
- **not comparable**: the reason stands below the table.

Words of the tables:

- **Forgetting**, F: how far a task's accuracy lies at the end below its best before the last task. A mean over all tasks but the last, as a
  share of 1; below 0 where later tasks help.
- **J**: how many samples the memory holds. **λ**: the weight of the replayed samples' loss. **S**, **V**, **A**: OCS's criteria; **τ** is
  the weight of A.
- `METHOD`: with the paper's settings for it, and ours where the paper names none. `METHOD:ocs-schedule`: with OCS's learning rates, batches
  and number of updates. `ocs:best`: OCS with the best settings that a search here found.
- `METHOD:own-classes`, where one output layer has all classes: the loss decides only among the classes of a sample's own task.
- **Reported seeds**: 0 to 4, those of the tables unless a section names others. **Seed 100**, and with it 101 and 102: those by which
  settings were chosen.
- **Time**: that of one run, on the device that most of a row's were made on.
"""
# the first table: Rotated MNIST's rows, and the columns with the tables that have them
SUMMARY_ROWS = {
    "uniform": "uniform",
    "icarl": "icarl",
    "bilevel": "bilevel",
    "ocs": "OCS, the paper's settings",
    "ocs:best": "OCS, the best found here",
}
SUMMARY_COLUMNS = {
    "balanced": ("table1", "rotated-mnist"),
    "imbalanced": ("table1", "rotated-mnist --imbalanced"),
    "60 % noise": ("table2", "rotated-mnist --noise 0.6"),
}


def write_results_page(kept: Path, out: Path, seeds: int = 5) -> Path:
    """OUT/RESULTS.md and OUT/figures/ from the results kept under a folder.

    A file notes/NAME.md beside the results stands below the heading of study NAME, notes/NAME-BENCHMARK.md above its first table of that
    benchmark, notes/introduction.md at the top and notes/choices.md before the searches: what was tried, and why a number misses.
    """
    results = read_results(kept)
    if not results:
        raise RunError(
            f"no result is kept in {kept}; give the folder that --results named when runs were made"
        )
    notes = _notes(kept / "notes")
    figures = {**_found(out / "figures"), **_drawn(results, out / "figures", seeds)}
    lost = [name for name in notes if _is_figure(name) and name not in figures]
    if lost:
        text = f"no picture in {out / 'figures'} for the notes on {', '.join(lost)}: the page leaves them out"
        warnings.warn(text, CorestreamWarning, stacklevel=2)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "RESULTS.md"
    write_text(path, results_page(results, seeds, notes, figures))
    return path


def results_page(
    results: Sequence[Result],
    seeds: int = 5,
    notes: Mapping[str, str] | None = None,
    figures: Mapping[str, str] | None = None,
) -> str:
    """The page's Markdown: tables, figures, searches, other runs; studies without any result are left out."""
    notes = notes or {}
    tables = {name: make_plan(study, range(seeds)).table(results) for name, study in STUDIES.items()}
    cells = [cell for table in tables.values() for cell in table.cells.values()]
    shown = {run_key(result.config) for cell in cells for result in cell.results}
    parts = [HEAD, *_summary(tables), READING, notes.get("introduction", "")]
    parts += _studies(tables, notes, "table")
    parts += _figures(figures or {}, notes)
    parts.append(notes.get("choices", ""))
    parts += _studies(tables, notes, "search", "settings")
    parts += _others(
        [result for result in results if run_key(result.config) not in shown], notes.get("others", "")
    )
    return "\n".join(parts)


def _summary(tables: Mapping[str, Table]) -> Iterator[str]:
    """Accuracies on Rotated MNIST with the paper's in brackets, and how many numbers got which verdict."""
    rows = {
        words: [
            _with_papers(tables[name].cells.get((row, condition), Cell()), row)
            for name, condition in SUMMARY_COLUMNS.values()
        ]
        for row, words in SUMMARY_ROWS.items()
    }
    if any(map(any, rows.values())):
        yield "Accuracy in %, mean over the seeds; in brackets what the paper prints.\n"
        yield markdown_line(["Rotated MNIST, 20 tasks", *SUMMARY_COLUMNS])
        yield markdown_line(["---", *["---:"] * len(SUMMARY_COLUMNS)])
        yield from (markdown_line([words, *numbers]) for words, numbers in rows.items())
        yield ""
    counts = Counter(
        cell.verdict(metric)
        for name, table in tables.items()
        if STUDIES[name].kind == "table"
        for cell in table.cells.values()
        for metric in table.metrics
    )
    within, rounding, better, miss = (counts[v] for v in ("within", "within rounding", "better", "miss"))
    if compared := within + rounding + better + miss:
        yield (
            f"Of the {compared} numbers below that can be compared with the paper's, {within} are within its window, "
            f"{rounding} within its rounding,\n{better} better, and {miss} miss. What several tables show is counted in each. "
            f"{counts['not comparable']} more are not comparable."
        )


def _with_papers(cell: Cell, row: str) -> str:
    own, paper = cell.measured.get("accuracy"), cell.paper.get("accuracy")
    if own is None:
        return ""
    return f"{own.mean:.1f}" + (f" ({paper.mean:.1f})" if paper and row != "ocs:best" else "")


def _studies(tables: Mapping[str, Table], notes: Mapping[str, str], *kinds: str) -> Iterator[str]:
    for name, table in tables.items():
        study = STUDIES[name]
        if study.kind in kinds and any(cell.results for cell in table.cells.values()):
            yield f"## {table.title}\n"
            yield notes.get(name, "")
            if study.kind == "table":
                yield from _sections(study, table, notes)
            else:
                yield from (search_sections if study.kind == "search" else settings_sections)(study, table)


def _figures(figures: Mapping[str, str], notes: Mapping[str, str]) -> Iterator[str]:
    if figures:
        yield "## Figures\n"
    for name, file in sorted(figures.items()):
        title = STUDIES[name].title if name in STUDIES else MEASURED.get(name, name)
        number = f"Figure {name.removeprefix('figure')}: " if name.startswith("figure") else ""
        yield from (f"### {number}{title}\n", f"![{title}]({file})\n", notes.get(name, ""))


def _is_figure(name: str) -> bool:
    return name in MEASURED or (name in STUDIES and STUDIES[name].is_figure)


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


def _sections(study: Study, table: Table, notes: Mapping[str, str]) -> Iterator[str]:
    """A table for each condition, those of a benchmark together below the note on it."""
    for benchmark in dict.fromkeys(condition.benchmark for condition in study.conditions):
        note = notes.get(f"{study.name}-{benchmark}", "")
        for condition in study.conditions:
            cells = {row: table.cells[row, condition.key] for row in table.rows}
            shown = {row: cell for row, cell in cells.items() if cell.results}
            if condition.benchmark == benchmark and shown:
                yield f"### {study.title.partition(',')[0]}: {condition.key}\n"
                yield from [note] if note else []
                yield from _rows(study, table, shown)
                note = ""


def _rows(study: Study, table: Table, shown: Mapping[str, Cell]) -> Iterator[str]:
    header = ["Method"]
    for metric in table.metrics:
        header += [HEADINGS[metric], "paper", "verdict"]
    header += ["runs", "device", "time", "command"]
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
    groups: dict[str, dict[bytes, list[Result]]] = {}  # by benchmark and scenario, then by configuration
    for result in results:
        scenario, _ = unusual_choices(result.config)
        place = result.config["benchmark"] + (f" --scenario {scenario}" if scenario else "")
        groups.setdefault(place, {}).setdefault(identity(result.config), []).append(result)
    if not groups:
        return
    header = ["Command", HEADINGS["accuracy"], HEADINGS["forgetting"], "runs", "device", "time"]
    yield "## Other runs that are kept\n"
    yield note
    for place, alike in sorted(groups.items()):
        yield f"### Other runs: {place}\n"
        yield markdown_line(header)
        yield markdown_line(["---"] * len(header))
        for group in alike.values():
            cell = make_cell(one_each(group))
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
