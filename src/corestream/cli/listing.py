"""`corestream list`: what there is."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from corestream.cli import options as opt
from corestream.cli.progress import title
from corestream.errors import ConfigError, RunError
from corestream.messages import counted
from corestream.studies.config import RunConfig, make_config
from corestream.studies.grouping import told_apart
from corestream.studies.results import Result
from corestream.studies.study import read_runs, unfinished_runs

Given = TypeVar("Given")
app = typer.Typer(no_args_is_help=True, help="What there is: methods, benchmarks, studies, settings, runs.")


@app.command()
def methods(as_json: opt.Json = False) -> None:
    """Every method, with one line on what it does."""
    from corestream import learners

    _show("method", {name: learners.describe(name) for name in learners.names()}, as_json)


@app.command()
def benchmarks(as_json: opt.Json = False) -> None:
    """Every benchmark, with one line on what it is."""
    from corestream import streams

    found = {name: str(streams.BENCHMARKS[name].summary) for name in streams.names()}
    _show("benchmark", found, as_json)


@app.command()
def studies(as_json: opt.Json = False) -> None:
    """The paper's tables and figures that `corestream paper` makes."""
    from corestream.cli.paper import ABOUT
    from corestream.studies.catalogue import STUDIES

    found = {name: STUDIES[name].title if name in STUDIES else words for name, words in ABOUT.items()}
    _show("study", found, as_json)


@app.command()
def settings(
    method: Annotated[str, typer.Argument(help="A name from `corestream list methods`.")],
    benchmark: Annotated[
        str | None, typer.Argument(help="Whose values to show; otherwise rotated-digits.")
    ] = None,
    benchmark_option: Annotated[str | None, typer.Option("--benchmark", help="The same.")] = None,
    imbalanced: Annotated[bool, typer.Option("--imbalanced")] = False,
    noise: Annotated[float, typer.Option(help="A noisy stream's, where it has its own.")] = 0.0,
    label_noise: Annotated[float, typer.Option(help="Likewise.")] = 0.0,
    scenario: Annotated[str | None, typer.Option(help="task or class, where the benchmark has both.")] = None,
    protocol: Annotated[str | None, typer.Option(help=opt.PROTOCOL)] = None,
    as_json: opt.Json = False,
) -> None:
    """Every hyperparameter of a method, with its value on a benchmark; each is an option of `run`."""
    config = make_config(
        _given_once("benchmark", benchmark, benchmark_option) or "rotated-digits",
        method,
        imbalanced=imbalanced,
        noise=noise,
        label_noise=label_noise,
        scenario=scenario,
        protocol=protocol,
    )
    values = {**config.settings, **config.options}
    if as_json:
        typer.echo(json.dumps(values))
        return
    _show("option", {f"--{name.replace('_', '-')}": _typed(value) for name, value in values.items()}, False)


def _typed(value: object) -> str:
    """As the command line takes it."""
    return "none" if value is None else json.dumps(value)


@app.command()
def runs(
    folder: Annotated[
        Path | None, typer.Argument(help="The folder of the runs: what --out was; otherwise runs.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The same.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Every run in a folder: ended, failed, or begun and not ended."""
    out = _given_once("out", folder, out) or Path("runs")
    if not out.is_dir():
        raise RunError(f"there is no folder {out}; give the one that --out named when the runs were made")
    found, begun = read_runs(out), unfinished_runs(out)
    if as_json:
        typer.echo(json.dumps([*map(_plain, found), *(_begun(*run) for run in begun.items())]))
        return
    if not found:
        others = f"; {counted(len(begun), 'has', 'have')} begun:" if begun else ""
        typer.echo(f"no run in {out} has ended or failed{others}")
    configs = {str(result.folder): RunConfig.from_dict(result.config) for result in found}
    titles = _titles(configs | {str(folder): config for folder, config in begun.items()})
    words = {}
    for result in found:
        accuracy = result.accuracy.get("average_accuracy")
        state = result.status if accuracy is None else f"{100 * accuracy:.1f} %"
        older = " (of an older version)" if result.older else ""
        words[str(result.folder)] = f"{titles[str(result.folder)]}: {state}{older}"
    words |= {str(folder): f"{titles[str(folder)]}: begun and not ended" for folder in begun}
    _show("run", words, as_json=False)


def _given_once(option: str, argument: Given | None, value: Given | None) -> Given | None:
    """What was given by itself, or by its option."""
    if argument is not None and value is not None:
        raise ConfigError(f"{argument} and --{option} {value} are two words for one choice; give one of them")
    return value if argument is None else argument


def _titles(configs: dict[str, RunConfig]) -> dict[str, str]:
    """Each run in a few words; where those are another one's too, with all that parts them."""
    alike: dict[str, list[str]] = {}
    for folder, config in configs.items():
        alike.setdefault(title(config), []).append(folder)
    titles = {}
    for name, folders in alike.items():
        parted = told_apart([configs[folder].to_dict() for folder in folders])
        for folder, words in zip(folders, parted, strict=True):
            titles[folder] = f"{name} ({', '.join(words)})" if words else name
    return titles


def _plain(result: Result) -> dict[str, Any]:
    return {
        "folder": str(result.folder),
        "config": dict(result.config),
        "status": result.status,
        "older": result.older,
        "note": result.note,
        "average_accuracy": result.accuracy.get("average_accuracy"),
        "forgetting": result.accuracy.get("forgetting"),
        "seconds": result.seconds,
    }


def _begun(folder: Path, config: RunConfig) -> dict[str, Any]:
    """As `_plain`, of a run that has found nothing yet."""
    return {**_plain(Result(config.to_dict(), {}, folder=folder)), "status": "unfinished"}


def _show(kind: str, lines: dict[str, str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([{kind: name, "description": line} for name, line in lines.items()]))
        return
    console = Console()
    # one line each for a program that reads them
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = opt.UNBOUNDED
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")  # nothing is left out where it is narrow
    for name, line in lines.items():
        table.add_row(Text(name), Text(line))  # not markup, which a folder's name may look like
    console.print(table)
