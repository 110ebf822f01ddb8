"""`corestream data`: which datasets there are, getting them, checking them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from corestream.errors import DataError
from corestream.streams.datasets import SOURCES, data_root, source

app = typer.Typer(no_args_is_help=True, help="List, fetch and verify the datasets.")

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Folder of the datasets [default: CORESTREAM_DATA, else the user's cache]."
    ),
]


@app.command("list")
def list_datasets(data_dir: DataDir = None) -> None:
    """Show every dataset and whether its files are there."""
    root = data_root(data_dir)
    table = Table("dataset", "images", "files", "what it is", title=f"datasets under {root}")
    for entry in SOURCES.values():
        missing = len(entry.missing(root))
        files = "built in" if not entry.files else "missing" if missing == len(entry.files) else "there"
        if 0 < missing < len(entry.files):
            files = f"{missing} of {len(entry.files)} missing"
        table.add_row(entry.name, f"{sum(entry.published):,}", files, entry.summary)
    Console().print(table)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Datasets to get, or `all`.")],
    data_dir: DataDir = None,
) -> None:
    """Download what is missing: publisher first, mirrors after, kept only when the checksum is right."""
    from corestream.streams.datasets.download import fetch as download

    root = data_root(data_dir)
    for entry in [source(name) for name in (SOURCES if names == ["all"] else names)]:
        if not entry.missing(root):
            typer.echo(f"{entry.name}: there already")
            continue
        download(entry, root)
        typer.echo(f"{entry.name}: fetched into {root}")


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME…]", help="Datasets to check [default: those that are there]."),
    ] = None,
    data_dir: DataDir = None,
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
    bad = 0
    for name in names or found:
        for verdict in check(source(name), root):
            detail = f" ({verdict.detail})" if verdict.detail else ""
            typer.echo(f"{verdict.file}: {verdict.state}{detail}")
            bad += verdict.state in (DAMAGED, MISSING)
        if not source(name).files:
            typer.echo(f"{name}: built in, nothing to check")
    if bad:
        raise DataError(f"{bad} file{'s are' if bad > 1 else ' is'} damaged or missing under {root}")
