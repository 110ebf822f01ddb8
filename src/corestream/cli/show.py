"""`corestream show`: the card of a benchmark."""

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from corestream.cli import options as opt
from corestream.cli.hyperparameters import choices_of
from corestream.errors import DataError
from corestream.messages import counted
from corestream.streams import benchmark
from corestream.streams.benchmarks.options import parse_options
from corestream.streams.card import contact_sheet
from corestream.streams.stream import Stream
from corestream.studies.config import canonical_benchmark, description
from corestream.studies.files import write_atomically

MANY_CLASSES = 12


def show(
    *,
    name: Annotated[str, typer.Argument(metavar="BENCHMARK", help="A benchmark's name, or folder:PATH.")],
    imbalanced: Annotated[bool, typer.Option("--imbalanced", help="Thin out most classes.")] = False,
    noise: Annotated[float, typer.Option(help="Share of the inputs replaced by noise.")] = 0.0,
    label_noise: Annotated[float, typer.Option(help="Share of the labels flipped.")] = 0.0,
    scenario: Annotated[str | None, typer.Option(help="task or class, where the benchmark has both.")] = None,
    tasks: opt.Tasks = None,
    seed: Annotated[int, typer.Option(help="The seed of every random choice.")] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="NAME=VALUE", help="A choice of the benchmark's, as --NAME VALUE."
        ),
    ] = None,
    data_dir: opt.DataDir = None,
    offline: opt.Offline = False,
    sheet: Annotated[
        Path | None,
        typer.Option(help="Where the picture of samples goes; otherwise corestream-BENCHMARK.png."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print an object; a picture only with --sheet.")
    ] = False,
    extra: dict[str, str],
) -> None:
    """Show a benchmark's tasks, classes and counts, and write a picture of its samples."""
    known = canonical_benchmark(name)
    own = {**choices_of(known, extra), **parse_options(option or ())}
    stream = benchmark(
        name,
        seed=seed,
        imbalanced=imbalanced,
        noise=noise,
        label_noise=label_noise,
        scenario=scenario,
        tasks=tasks,
        data_dir=data_dir,
        offline=offline,
        **description(known).checked_options(own),
    )
    card = stream.describe()
    path = sheet
    if sheet is None and not as_json:
        path = Path(f"corestream-{re.sub(r'[^A-Za-z0-9._-]+', '-', stream.name)}.png")
    if path is not None:
        _save_sheet(stream, path)
        card["sheet"] = str(path)
    if as_json:
        typer.echo(json.dumps(card, indent=2))
    else:
        _print_card(card, Console())


def _save_sheet(stream: Stream, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = BytesIO()
        contact_sheet(stream).save(drawn, format="PNG")
        write_atomically(path, drawn.getvalue())
    except OSError as error:
        raise DataError(f"{path}: the contact sheet cannot be written ({error.strerror})") from error


def _print_card(card: dict[str, Any], console: Console) -> None:
    shape = " × ".join(str(side) for side in card["input_shape"])
    tasks, classes = counted(card["tasks"], "task"), counted(card["classes"], "class", "classes")
    console.print(f"[bold]{escape(card['name'])}[/]: {tasks}, {classes}, {card['scenario']} scenario")
    console.print(f"inputs {shape}, batches of {card['batch_size']}, seed {card['seed']}")
    for key, value in card["settings"].items():
        console.print(f"{key.replace('_', ' ')}: {escape(str(value))}", highlight=False)
    console.print(_counts_table(card, console))
    if card["skipped"]:
        console.print(f"left out ({len(card['skipped'])}):")
        for name in card["skipped"]:
            console.print(f"  {escape(name)}", highlight=False, soft_wrap=True)
    if card["files_note"]:
        console.print(f"[yellow]{escape(card['files_note'])}[/]")
    console.print(f"contact sheet: {escape(card['sheet'])}", highlight=False, soft_wrap=True)


def _counts_table(card: dict[str, Any], console: Console) -> Table:
    """A row per task; training samples of each class, or their range where the classes are many or the console is narrow."""
    classes = sorted({int(label) for counts in card["train_per_class"] for label in counts})
    if len(classes) > MANY_CLASSES:
        return _table_of_tasks(card, [])
    by_class = _table_of_tasks(card, classes)
    room = console.options.update(max_width=opt.UNBOUNDED)
    fits = Measurement.get(console, room, by_class).maximum <= console.width
    return by_class if fits else _table_of_tasks(card, [])


def _table_of_tasks(card: dict[str, Any], classes: list[int]) -> Table:
    """With a column for each of the classes, or one for their range where none is given."""
    corrupted = {"noise": card["noise_samples"], "flipped": card["flipped_labels"]}
    extra = {title: numbers for title, numbers in corrupted.items() if any(numbers)}
    names = [escape(card["class_names"][label]) for label in classes] or ["per class"]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("task", "train", "test", *extra, *names):
        table.add_column(heading, overflow="fold")  # nothing is left out
    for task, counts in enumerate(card["train_per_class"]):
        numbers = (card["train"][task], card["test"][task], *(column[task] for column in extra.values()))
        spread = (
            f"{counted(len(counts), 'class', 'classes')} of {min(counts.values())} to {max(counts.values())}"
        )
        per_class = [str(counts.get(str(label), "")) for label in classes] or [spread]
        table.add_row(escape(card["titles"][task]), *map(str, numbers), *per_class)
    return table
