"""`corestream report`: one self-contained page about the runs in a folder."""

import json
from pathlib import Path
from typing import Annotated

import typer

from corestream.cli import options as opt
from corestream.errors import RunError
from corestream.studies.report import write_report
from corestream.studies.study import read_runs, unfinished_runs


def report(
    folder: Annotated[
        Path, typer.Argument(help="The folder of the runs: what --out was.", show_default=False)
    ],
    page: Annotated[Path | None, typer.Option(help="The page; otherwise FOLDER/report.html.")] = None,
    title: Annotated[str | None, typer.Option(help="Its title; otherwise the folder's name.")] = None,
    data_dir: opt.DataDir = None,
    as_json: opt.Json = False,
) -> None:
    """Write a page with the table, curves, forgetting, noise, classes and pictures of every run in a folder."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}; give the one that --out named when the runs were made")
    if page is not None and page.is_dir():
        raise RunError(f"{page} is a folder; name the page in it, as {page / 'report.html'}")
    results, begun = read_runs(folder), unfinished_runs(folder).values()
    if not results:
        under_way = f", {len(begun)} begun" if begun else ""
        raise RunError(
            f"no run in {folder} has ended{under_way}; give the folder that --out named when they were made"
        )
    name = title or f"Runs in {folder.resolve().name}"
    written = write_report(
        results, page or folder / "report.html", title=name, unfinished=begun, data_dir=data_dir
    )
    told = {"page": str(written), "runs": len(results), "unfinished": len(begun)}
    typer.echo(json.dumps(told) if as_json else f"wrote {written}")
