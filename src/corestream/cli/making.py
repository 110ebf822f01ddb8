"""Making a plan's runs and showing its table: what `paper` and `demo` share."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from corestream.cli.progress import RunDisplay
from corestream.studies.config import RunConfig
from corestream.studies.drive import Options
from corestream.studies.formats import to_terminal
from corestream.studies.results import Result
from corestream.studies.study import RunSet
from corestream.studies.tables import Table


def make_missing(
    configs: Sequence[RunConfig], out: Path, *, jobs: int | None, options: Options
) -> list[Result]:
    """Make the runs that are not under `out` yet, with their progress on stderr; returns what all of them found."""
    runs = RunSet(configs, out)
    missing = runs.missing()
    with RunDisplay(len(missing)) if missing else nullcontext() as display:
        # its arguments are checked where nothing is missing, too
        runs.make(jobs=jobs, options=options, watcher=display)
    return runs.results()


def show(table: Table, files: Sequence[Path], *, as_json: bool) -> None:
    """The table and where its files are."""
    if as_json:
        typer.echo(json.dumps(plain(table, files)))
        return
    Console().print(to_terminal(table))
    for path in files:
        typer.echo(f"wrote {path}")


def plain(table: Table, files: Sequence[Path]) -> dict[str, Any]:
    """A table for programs."""
    cells = []
    for (row, condition), cell in table.cells.items():
        metrics: dict[str, Any] = {}
        for metric in table.metrics:
            own, paper = cell.measured.get(metric), cell.paper.get(metric)
            metrics[metric] = {
                "mean": own.mean if own else None,
                "sd": own.sd if own else None,
                "paper_mean": paper.mean if paper else None,
                "paper_sd": paper.sd if paper else None,
                "verdict": cell.verdict(metric) or None,
            }
        cells.append(
            {
                "row": row,
                "condition": condition,
                **metrics,
                "runs": cell.done,
                "expected": cell.expected,
                "diverged": cell.diverged,
                "failed": cell.failed,
                "not_comparable": cell.not_comparable or None,
                "folders": [str(result.folder) for result in cell.results if result.folder],
            }
        )
    return {"name": table.name, "title": table.title, "cells": cells, "files": [str(path) for path in files]}
