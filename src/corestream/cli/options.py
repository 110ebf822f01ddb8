"""The options that the commands share, and the TOML file that may hold them all."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from corestream.cli.hyperparameters import table_of
from corestream.errors import ConfigError
from corestream.messages import check_name
from corestream.studies.values import convert

UNBOUNDED = 10_000  # columns, more than any table has
STREAM, MAKING, OUTPUT = "The stream", "How it is made", "What is written"

Benchmark = Annotated[
    str | None,
    typer.Argument(help="A name from `corestream list benchmarks`, or folder:PATH.", show_default=False),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file with what defines the runs; what is given here wins."),
]
Imbalanced = Annotated[
    bool | None, typer.Option("--imbalanced/--balanced", help="Most classes rare.", rich_help_panel=STREAM)
]
Noise = Annotated[
    float | None, typer.Option(help="Share of training inputs that are noise.", rich_help_panel=STREAM)
]
LabelNoise = Annotated[
    float | None, typer.Option(help="Share of training labels that are flipped.", rich_help_panel=STREAM)
]
Scenario = Annotated[
    str | None,
    typer.Option(
        help="task or class, where the benchmark has both; folder:PATH also domain.", rich_help_panel=STREAM
    ),
]
Tasks = Annotated[int | None, typer.Option(help="Only the first N tasks.", rich_help_panel=STREAM)]
Model = Annotated[
    str | None, typer.Option(help="mlp or resnet18; otherwise the benchmark's own.", rich_help_panel=STREAM)
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the datasets; otherwise CORESTREAM_DATA, else the user's cache.",
        rich_help_panel=STREAM,
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Never download.", rich_help_panel=STREAM)]
PROTOCOL = "Whose settings: paper, best (ours), or ocs-schedule; otherwise best where there are any."
Protocol = Annotated[str | None, typer.Option(help=PROTOCOL, rich_help_panel=MAKING)]
Device = Annotated[
    str | None, typer.Option(help="auto, cpu or cuda; otherwise auto.", rich_help_panel=MAKING)
]
Deterministic = Annotated[
    bool | None,
    typer.Option(
        "--deterministic", help="Only CUDA kernels that repeat bit for bit.", rich_help_panel=MAKING
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(help="Runs at a time; otherwise one per core, on a card 30.", rich_help_panel=MAKING),
]
CheckpointEvery = Annotated[
    int | None,
    typer.Option(
        help="Steps between checkpoints; otherwise 1,000, and on a card each minute.",
        min=1,
        show_default=False,
        rich_help_panel=MAKING,
    ),
]
Out = Annotated[Path, typer.Option(help="The folder of the runs.", rich_help_panel=OUTPUT)]
Record = Annotated[
    str | None,
    typer.Option(help="Also write picks, scores or both (picks,scores).", rich_help_panel=OUTPUT),
]
Log = Annotated[
    str | None, typer.Option(help="Also log to tensorboard, mlflow, wandb.", rich_help_panel=OUTPUT)
]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.", rich_help_panel=OUTPUT)]

FIELDS: dict[str, Any] = {
    "benchmark": str,
    "method": str,
    "methods": tuple[str, ...],
    "seed": int,
    "seeds": int,
    "imbalanced": bool,
    "noise": float,
    "label_noise": float,
    "scenario": str,
    "tasks": int,
    "model": str,
    "protocol": str,
    "device": str,
    "deterministic": bool,
    "record": tuple[str, ...],
}


def gather(path: Path | None, given: Mapping[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """The file's values, replaced by those of the command line.

    Its tables `settings` and `options` hold hyperparameters and the benchmark's choices.
    """
    names = [*allowed, "settings", "options"]
    read = {} if path is None else read_toml(path)
    values = {name.replace("-", "_"): value for name, value in read.items()}
    for name in values:
        if name not in names and (table := table_of(name)) is not None:
            raise ConfigError(f"{path} has {name!r} at its top; it belongs under [{table}]")
        check_name(f"option in {path}", name, names)
    tables = {name: _spelled(convert(name, values.pop(name, {}), dict)) for name in ("settings", "options")}
    if "model" in values:  # another word for it, which the command line may replace by either
        tables["settings"].setdefault("network", values.pop("model"))
    values |= {name: value for name, value in given.items() if value is not None}
    return {name: convert(name, value, FIELDS[name]) for name, value in values.items()} | tables


def _spelled(table: Mapping[str, Any]) -> dict[str, Any]:
    """As Python spells them; a table inside is a method's, and its name has hyphens of its own."""
    return {
        name if isinstance(value, dict) else name.replace("-", "_"): _spelled(value)
        if isinstance(value, dict)
        else value
        for name, value in table.items()
    }


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {path}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error


def split_names(text: str | None) -> tuple[str, ...] | None:
    """`a,b,c` as names, and `[1,2],[1]` as the two that they are; None where the option was not given."""
    if text is None:
        return None
    names = tuple(part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip())
    if not names:
        raise ConfigError(
            f"{text!r} names nothing; give names with commas between them, or leave the option out"
        )
    return names
