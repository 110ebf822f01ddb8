"""`corestream data`: which datasets there are, getting them, checking them."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from corestream.cli import options as opt
from corestream.errors import DataError
from corestream.streams.datasets import SOURCES, data_root, source
from corestream.streams.datasets.source import Source

app = typer.Typer(no_args_is_help=True, help="List, fetch and verify the datasets.")

SAMPLE = "there, a sample"


@app.command("list")
def list_datasets(data_dir: opt.DataDir = None, as_json: opt.Json = False) -> None:
    """Show every dataset and whether its files are there."""
    root = data_root(data_dir)
    found: list[dict[str, Any]] = [
        {
            "dataset": entry.name,
            "published_images": sum(entry.published),
            "files": _files(entry, root),
            "description": entry.summary,
        }
        for entry in SOURCES.values()
    ]
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = Table(
        "dataset", "published images", "files", "what it is", title=escape(f"datasets under {root}")
    )
    for line in found:
        table.add_row(line["dataset"], f"{line['published_images']:,}", line["files"], line["description"])
    Console().print(table)
    if any(line["files"] == SAMPLE for line in found):
        typer.echo("A sample: less than half the published bytes. `corestream data verify` checks the files.")


def _files(entry: Source, root: Path) -> str:
    missing = len(entry.missing(root))
    if 0 < missing < len(entry.files):
        return f"{missing} of {len(entry.files)} missing"
    if not entry.files:
        return "built in"
    return "missing" if missing else SAMPLE if entry.looks_sampled(root) else "there"


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Datasets to get, or `all`.")],
    data_dir: opt.DataDir = None,
    as_json: opt.Json = False,
) -> None:
    """Download what is missing: publisher first, mirrors after, kept only when the checksum is right."""
    from corestream.streams.datasets.download import fetch as download

    root = data_root(data_dir)
    done = []
    for entry in [source(name) for name in (SOURCES if names == ["all"] else names)]:
        news = "there already"
        if entry.missing(root):
            download(entry, root)
            news = f"fetched into {root}"
        done.append({"dataset": entry.name, "state": news})
        if not as_json:
            typer.echo(f"{entry.name}: {news}")
    if as_json:
        typer.echo(json.dumps(done))


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME…]", help="Datasets to check; otherwise those that are there."),
    ] = None,
    data_dir: opt.DataDir = None,
    as_json: opt.Json = False,
) -> None:
    """Check checksums and structure; damaged or missing files end with status 1."""
    from corestream.streams.datasets.verify import DAMAGED, MISSING
    from corestream.streams.datasets.verify import verify as check

    root = data_root(data_dir)
    found = [entry.name for entry in SOURCES.values() if len(entry.missing(root)) < len(entry.files)]
    if not names and not found:
        raise DataError(
            f"{root}: holds no dataset; get one with `corestream data fetch NAME --data-dir {root}`"
        )
    verdicts = []
    for name in names or found:
        for verdict in check(source(name), root):
            verdicts.append(verdict)
            if not as_json:
                typer.echo(
                    f"{verdict.file}: {verdict.state}{f' ({verdict.detail})' if verdict.detail else ''}"
                )
        if not source(name).files and not as_json:
            typer.echo(f"{name}: built in, nothing to check")
    if as_json:
        typer.echo(json.dumps([asdict(verdict) for verdict in verdicts]))
    if bad := sum(verdict.state in (DAMAGED, MISSING) for verdict in verdicts):
        raise DataError(f"{bad} file{'s are' if bad > 1 else ' is'} damaged or missing under {root}")
