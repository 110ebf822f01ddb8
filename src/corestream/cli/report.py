"""`corestream report`: one self-contained page about the runs in one or more folders."""

import json
from pathlib import Path
from typing import Annotated

import typer

from corestream.cli import options as opt
from corestream.errors import RunError
from corestream.studies.report import write_report
from corestream.studies.study import read_runs, unfinished_runs


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER…", help="The folders of the runs: what --out was.", show_default=False
        ),
    ],
    page: Annotated[
        Path | None, typer.Option(help="The page; otherwise report.html in the first folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its title; otherwise the folders' names.")] = None,
    data_dir: opt.DataDir = None,
    as_json: opt.Json = False,
) -> None:
    """Write a page with the table, curves, forgetting, noise, classes and pictures of every run in the folders."""
    for folder in folders:
        if not folder.is_dir():
            raise RunError(
                f"there is no folder {folder}; give the one that --out named when the runs were made"
            )
    if page is not None and page.is_dir():
        raise RunError(f"{page} is a folder; name the page in it, as {page / 'report.html'}")
    folders = list({folder.resolve(): folder for folder in folders}.values())
    results = [result for folder in folders for result in read_runs(folder)]
    ended = {result.folder.name for result in results if result.folder is not None}
    begun = [
        config
        for folder in folders
        for config in unfinished_runs(folder).values()
        if config.digest() not in ended  # in another folder
    ]
    if not results:
        under_way = f", {len(begun)} begun" if begun else ""
        raise RunError(
            f"no run in {', '.join(map(str, folders))} has ended{under_way}; give the folder that --out named when they were made"
        )
    name = title or f"Runs in {', '.join(folder.resolve().name for folder in folders)}"
    written = write_report(
        results, page or folders[0] / "report.html", title=name, unfinished=begun, data_dir=data_dir
    )
    told = {"page": str(written), "runs": len(results), "unfinished": len(begun)}
    typer.echo(json.dumps(told) if as_json else f"wrote {written}")
