"""`corestream run`: one run, made, continued or found."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from corestream.cli import options as opt
from corestream.cli.hyperparameters import split
from corestream.cli.progress import RunDisplay, title
from corestream.errors import ConfigError
from corestream.studies.config import RunConfig, canonical_benchmark, make_config
from corestream.studies.drive import Options
from corestream.studies.environment import resolve_device
from corestream.studies.layout import NONE
from corestream.studies.loggers import check_loggers
from corestream.studies.pool import Outcome
from corestream.studies.study import make_alone

ALLOWED = tuple(name for name in opt.FIELDS if name not in ("methods", "seeds"))


def run(
    *,
    benchmark: opt.Benchmark = None,
    method: Annotated[str | None, typer.Option(help="A name from `corestream list methods`.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides the stream and every draw; otherwise 0.")] = None,
    config: opt.Config = None,
    imbalanced: opt.Imbalanced = None,
    noise: opt.Noise = None,
    label_noise: opt.LabelNoise = None,
    scenario: opt.Scenario = None,
    tasks: opt.Tasks = None,
    model: opt.Model = None,
    data_dir: opt.DataDir = None,
    offline: opt.Offline = False,
    protocol: opt.Protocol = None,
    device: opt.Device = None,
    deterministic: opt.Deterministic = None,
    threads: Annotated[
        int | None,
        typer.Option(help="torch's threads; otherwise all cores.", min=1, rich_help_panel=opt.MAKING),
    ] = None,
    checkpoint_every: opt.CheckpointEvery = None,
    out: opt.Out = Path("runs"),
    record: opt.Record = None,
    log: opt.Log = None,
    as_json: opt.Json = False,
    extra: dict[str, str],
) -> None:
    """Train one method on one stream. Started again, it goes on where it was, or says what it found."""
    given = {name: value for name, value in locals().items() if name in ALLOWED}
    values = opt.gather(config, {**given, "record": opt.split_names(record)}, ALLOWED)
    for name in ("benchmark", "method"):
        if name not in values:
            raise ConfigError(f"no {name} is given; `corestream list {name}s` shows them")
    chosen = configure(values, extra)
    how = Options(
        data_dir=data_dir,
        offline=offline,
        checkpoint_steps=checkpoint_every,
        loggers=check_loggers(opt.split_names(log) or ()),
        threads=threads,
    )
    with OneRun() as display:
        result = make_alone(chosen, out, how, display)
    _print(chosen, out / chosen.digest(), result, as_json)
    if result["status"] != "done":
        raise typer.Exit(1)


class OneRun(RunDisplay):
    """Shows how far a run is; what it found is printed at its end."""

    def ended(self, outcome: Outcome) -> None: ...


def configure(values: dict[str, Any], extra: Mapping[str, str]) -> RunConfig:
    """The configuration that the file and the command line ask for."""
    choices = dict(values)
    benchmark, method = canonical_benchmark(choices.pop("benchmark")), choices.pop("method")
    choices["device"] = resolve_device(choices.get("device", "auto"))
    settings, options = choices.pop("settings"), choices.pop("options")
    if "model" in choices and "network" in extra:
        raise ConfigError("--model and --network are two words for one choice; give one of them")
    if "model" in choices:
        settings = {**settings, "network": choices.pop("model")}
    plain = make_config(benchmark, method, **choices)
    hyper, own = split(benchmark, plain.settings, extra)
    overrides = {**settings, **hyper}
    return make_config(benchmark, method, overrides=overrides, options={**options, **own}, **choices)


def _print(config: RunConfig, folder: Path, result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), **result}, sort_keys=True))
        return
    if result["status"] == "done":
        single = len(result.get("matrix", ())) == 1  # nothing could be forgotten
        forgetting = None if single else result.get("forgetting")
        found = f"accuracy {100 * result['average_accuracy']:.1f} %, forgetting "
        found += NONE if forgetting is None else f"{forgetting:.3f}"
    else:
        found = f"diverged: {result.get('note')}"
    Console().print(f"{title(config)}: {found}\n{folder}", markup=False, highlight=False, soft_wrap=True)
