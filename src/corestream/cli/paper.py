"""`corestream paper`: the paper's tables and figures, made again, with its numbers beside.

What draws is imported where it draws: matplotlib takes its time, and no other command needs it.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from corestream.cli import options as opt
from corestream.cli.making import make_missing, plain, show
from corestream.errors import ConfigError
from corestream.messages import check_name
from corestream.studies.catalogue import MEASURED, STUDIES
from corestream.studies.config import RunConfig, canonical_benchmark, check_method
from corestream.studies.design import Study
from corestream.studies.drive import Options
from corestream.studies.environment import resolve_device
from corestream.studies.files import write_atomically
from corestream.studies.formats import grid_to_markdown, grid_to_terminal, write_table
from corestream.studies.picture_sets import DIGITS
from corestream.studies.plan import Plan, RunKey, make_plan, run_key
from corestream.studies.results import Result, read_results, write_result
from corestream.studies.settings_table import settings_grid, settings_records
from corestream.studies.tables import Table

if TYPE_CHECKING:
    from corestream.studies.measured import Source

ABOUT = {
    "table1": "main",
    "table2": "noise",
    "table3": "gradients, inputs or features",
    "table4": "the criteria",
    "table5": "running time",
    "table6": "MC-SGD",
    "adaptation": "",
    "class-incremental": "",
    "uniform-ocs": "",
    "partial-gradients": "",
    "lambda": "the search behind every λ",
    "best-rotated-mnist": "the search for OCS's best settings",
    "best-split-cifar100": "the same",
    "best-multi-datasets": "the same",
    "hyperparameters": "the appendix's beside ours",
    "figure3": "single samples' effect",
    "figure4": "curves",
    "figure5": "memory sizes",
    "figure6": "interpolation",
    "figure7": "kept pictures",
    "figure8": "t-SNE",
    "minibatch-distance": "gradients of batches and of the whole dataset",
    "all": "all that is made from runs, of which each is made once",
    "ledger": "RESULTS.md from kept results",
}
HELP = "; ".join(f"{name} ({words})" if words else name for name, words in ABOUT.items()) + "."
SEEDS = 5
PICTURES = ("kept pictures", "t-SNE")  # show one run's memory, which no small JSON file has


def paper(
    name: Annotated[str, typer.Argument(help=HELP, show_default=False)],
    benchmark: Annotated[str | None, typer.Option(help="Only this one, or the study moved to it.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these rows, with commas between.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help=f"How many: 0, 1, …; otherwise {SEEDS}, for pictures 1.", min=1)
    ] = None,
    tasks: opt.Tasks = None,
    data_dir: opt.DataDir = None,
    offline: opt.Offline = False,
    device: opt.Device = None,
    jobs: opt.Jobs = None,
    out: opt.Out = Path("runs"),
    results: Annotated[
        Path | None,
        typer.Option(
            help="A folder of small JSON files: runs found there are not made, others are added.",
            rich_help_panel=opt.OUTPUT,
        ),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Make a table or figure of the paper; beside each number the paper's, and whether the two agree.

    The table is written as Markdown, CSV and LaTeX, a figure as PNG and SVG, under OUT/paper.
    """
    check_name("table or figure", name, ABOUT)
    given = {"benchmark": benchmark, "methods": methods, "seeds": seeds, "tasks": tasks, "jobs": jobs}
    _refuse_idle_options(name, {**given, "results": results})
    if results is not None and results.exists() and not results.is_dir():
        raise ConfigError(f"{results} is no folder; --results names the folder of the small JSON files")
    folder = out / "paper"
    if name == "hyperparameters":
        _hyperparameters(folder, as_json)
    elif name == "ledger":
        _ledger(results, out, seeds or SEEDS, as_json)
    elif name in MEASURED:
        from corestream.studies.measured import Source

        if benchmark is not None:
            check_name(f"benchmark for {name}", benchmark, [DIGITS], hint="; without one, MNIST and CIFAR-10")
        source = Source(benchmark, resolve_device(device or "auto"), data_dir, offline)
        _measured(name, source, seeds or SEEDS, folder, as_json)
    else:
        studies = _all_on(benchmark) if name == "all" else [_narrowed(STUDIES[name], benchmark, methods)]
        plans = [_plan(study, seeds, tasks, resolve_device(device or "auto")) for study in studies]
        kept, made = _results(plans, out, results, jobs, Options(data_dir=data_dir, offline=offline))
        written = [_written(plan, kept, made, folder, data_dir, offline) for plan in plans]
        if as_json and name == "all":
            typer.echo(json.dumps([plain(table, files) for table, files in written]))
        else:
            for table, files in written:
                show(table, files, as_json=as_json)
        if not all(table.whole for table, _ in written):
            raise typer.Exit(1)


def _refuse_idle_options(name: str, given: Mapping[str, object]) -> None:
    """What is not made from a study's runs does not take a study's options."""
    own_seeds = [study.name for study in STUDIES.values() if study.seeds]
    timed = [study.name for study in STUDIES.values() if study.is_timed]
    by_name: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(own_seeds, ("benchmark", "methods", "tasks", "jobs", "results")),
        **dict.fromkeys(timed, ("benchmark", "methods", "tasks", "results")),
        "hyperparameters": (),
        "all": ("benchmark", "seeds", "tasks", "jobs", "results"),
        "ledger": ("seeds", "results"),
        "figure3": ("benchmark",),
        "minibatch-distance": ("benchmark", "seeds"),
    }
    taken = by_name.get(name, tuple(given))
    idle = [f"--{option}" for option, value in given.items() if value is not None and option not in taken]
    if idle:
        raise ConfigError(f"`paper {name}` takes no {', '.join(idle)}: {_why_idle(name)}")


def _why_idle(name: str) -> str:
    seeds = STUDIES[name].seeds if name in STUDIES else None
    if name == "all":
        return "each table and figure has its own rows"
    if not seeds:
        return "it is not made from runs of a study"
    alone = ", and each run is timed alone" if STUDIES[name].is_timed else ""
    return f"its seed{'s are' if len(seeds) > 1 else ' is'} {', '.join(map(str, seeds))}{alone}"


def _narrowed(study: Study, benchmark: str | None, methods: str | None) -> Study:
    if benchmark is not None:
        study = study.on(canonical_benchmark(benchmark))
    names = opt.split_names(methods)
    if names is not None:
        known = {row.label for row in study.rows}
        for name in names:
            if name not in known:
                check_method(name.partition(":")[0])
        study = study.with_methods(names)
    return study


def _all_on(benchmark: str | None) -> list[Study]:
    """Every study, or those that have the benchmark; a study of others is not moved to it."""
    if benchmark is None:
        return list(STUDIES.values())
    known = {condition.benchmark for study in STUDIES.values() for condition in study.conditions}
    check_name("benchmark of the paper", name := canonical_benchmark(benchmark), sorted(known))
    return [
        study.on(name) for study in STUDIES.values() if any(c.benchmark == name for c in study.conditions)
    ]


def _plan(study: Study, seeds: int | None, tasks: int | None, device: str) -> Plan:
    count = seeds or (1 if study.kind in PICTURES else SEEDS)
    return make_plan(study, range(count), device=device, tasks=tasks)


def _results(
    plans: Sequence[Plan], out: Path, kept_in: Path | None, jobs: int | None, options: Options
) -> tuple[list[Result], list[Result]]:
    """What is kept already, and the missing runs made now; these are kept as well where a folder is named."""
    kept = read_results(kept_in) if kept_in is not None and kept_in.is_dir() else []
    known = {run_key(result.config) for result in kept}
    missing: dict[RunKey, RunConfig] = {}  # one for settings that two protocols share
    timed: set[RunKey] = set()
    for plan in plans:
        for config in plan.all_configs():
            key = run_key(config.to_dict())
            if plan.study.kind in PICTURES or key not in known:
                missing.setdefault(key, config)
                if plan.study.is_timed:
                    timed.add(key)
    together = [config for key, config in missing.items() if key not in timed]
    alone = [config for key, config in missing.items() if key in timed]
    made = make_missing(together, out, jobs=jobs, options=options)
    made += make_missing(alone, out, jobs=1, options=options)
    if kept_in is not None:
        for result in made:
            if result.status != "failed" and run_key(result.config) not in known:
                write_result(result, kept_in)
    return kept, made


def _written(
    plan: Plan,
    kept: Sequence[Result],
    made: Sequence[Result],
    folder: Path,
    data_dir: Path | None,
    offline: bool,
) -> tuple[Table, list[Path]]:
    """A study's table, and its files with those of its figure. Of two results of a run the kept one counts, but for pictures."""
    shows = [result for result in made if result.status != "failed"]
    table = plan.table([*kept, *shows] if plan.study.kind in PICTURES and shows else [*made, *kept])
    files = write_table(table, folder)
    if plan.study.is_figure and any(cell.done for cell in table.cells.values()):
        from corestream.studies.figures.style import save
        from corestream.studies.illustrate import illustrate, note_on

        figure = illustrate(plan.study.kind, table, data_dir=data_dir, offline=offline)
        files += save(figure, folder, table.name, note_on(table))
    return table, files


def _hyperparameters(folder: Path, as_json: bool) -> None:
    grid = settings_grid()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "hyperparameters.md"
    write_atomically(path, grid_to_markdown(grid).encode())
    if as_json:
        typer.echo(json.dumps(settings_records()))
    else:
        Console().print(grid_to_terminal(grid))
        typer.echo(f"wrote {path}")


def _ledger(results: Path | None, out: Path, seeds: int, as_json: bool) -> None:
    if results is None:
        raise ConfigError("`paper ledger` is made from kept results alone: name their folder with --results")
    from corestream.studies.results_page import write_results_page

    path = write_results_page(results, out, seeds)
    typer.echo(json.dumps({"name": "ledger", "files": [str(path)]}) if as_json else f"wrote {path}")


def _measured(name: str, source: "Source", seeds: int, folder: Path, as_json: bool) -> None:
    from corestream.studies.figures.style import save
    from corestream.studies.measured import distances, figure3

    found = figure3(source) if name == "figure3" else distances(source, range(seeds))
    files = save(found.figure, folder, name, found.note)
    numbers = folder / f"{name}.csv"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(found.numbers[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found.numbers)
    write_atomically(numbers, text.getvalue().encode())
    paths = [str(path) for path in (*files, numbers)]
    if as_json:
        typer.echo(json.dumps({"name": name, "note": found.note, "files": paths}))
        return
    typer.echo(found.note)
    for path in paths:
        typer.echo(f"wrote {path}")
