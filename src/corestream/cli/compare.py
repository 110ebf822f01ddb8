"""`corestream compare`: several methods on one stream over several seeds, as a table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from corestream.cli import options as opt
from corestream.cli.making import make_missing
from corestream.cli.run import configure
from corestream.errors import ConfigError
from corestream.messages import check_name, counted
from corestream.studies.config import RunConfig, check_method, make_config
from corestream.studies.drive import Options
from corestream.studies.formats import to_terminal
from corestream.studies.grouping import condition_of, label_of
from corestream.studies.loggers import check_loggers
from corestream.studies.plan import RunKey, run_key
from corestream.studies.results import Result
from corestream.studies.tables import Table, make_cell

ALLOWED = tuple(name for name in opt.FIELDS if name not in ("method", "seed"))
METHODS, SEEDS = ("finetune", "uniform", "ocs"), 3


def compare(
    *,
    benchmark: opt.Benchmark = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Names, with commas between, or NAME:PROTOCOL as ocs:best; otherwise {','.join(METHODS)}."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help=f"How many, from 0 on; otherwise {SEEDS}.", min=1)] = None,
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
    jobs: opt.Jobs = None,
    checkpoint_every: opt.CheckpointEvery = None,
    out: opt.Out = Path("runs"),
    record: opt.Record = None,
    log: opt.Log = None,
    as_json: opt.Json = False,
    extra: dict[str, str],
) -> None:
    """Compare methods: mean ± sd over seeds. Runs that are there are reused; a failing one leaves a hole."""
    given = {name: value for name, value in locals().items() if name in ALLOWED}
    lists = {"methods": opt.split_names(methods), "record": opt.split_names(record)}
    values = opt.gather(config, {**given, **lists}, ALLOWED)
    if "benchmark" not in values:
        raise ConfigError("no benchmark is given; `corestream list benchmarks` shows them")
    configs = _configurations(values, extra)
    how = Options(
        data_dir=data_dir,
        offline=offline,
        checkpoint_steps=checkpoint_every,
        loggers=check_loggers(opt.split_names(log) or ()),
    )
    every = [config for group in configs.values() for config in group]
    results = make_missing(every, out, jobs=jobs, options=how)
    _tell_of_threads(results)
    table = _table(configs, results)
    if as_json:
        typer.echo(json.dumps(_plain(table, configs, out)))
    else:
        Console().print(to_terminal(table))
    if not table.whole:
        raise typer.Exit(1)


def _configurations(values: dict[str, Any], extra: dict[str, str]) -> dict[str, list[RunConfig]]:
    """By the name asked for; two may be the same, as "ocs" and "ocs:best". A hyperparameter goes to every method that has it,
    `[settings.METHOD]` of a file to that one alone."""
    choices = dict(values)
    usual = choices.pop("protocol", None)
    asked = {name: name.partition(":") for name in choices.pop("methods", METHODS)}
    rows = {name: (check_method(method), protocol or usual) for name, (method, _, protocol) in asked.items()}
    names = list(dict.fromkeys(method for method, _ in rows.values()))
    seeds, tables = choices.pop("seeds", SEEDS), choices.pop("settings")
    own = {check_method(name): table for name, table in tables.items() if isinstance(table, dict)}
    if not names:
        raise ConfigError("methods is empty; name at least one")
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}; at least 1 is needed")
    for name in own:
        if name not in names:
            raise ConfigError(f"settings.{name}: {name} is none of the methods compared, {', '.join(names)}")
    shared = {name: value for name, value in tables.items() if name not in own}
    if "model" in choices:  # on the command line, which wins
        shared.pop("network", None)
    plain = {name: make_config(choices["benchmark"], name) for name in names}
    fields = {name: {*config.settings, *config.options} for name, config in plain.items()}
    for name in shared | extra:
        check_name("option for these methods", name, sorted(set().union(*fields.values())))
    configs: dict[str, list[RunConfig]] = {}
    known: dict[RunKey, RunConfig] = {}  # where two protocols have the same settings there is one run
    for name, (method, protocol) in rows.items():
        settings = own.get(method, {})
        # what a file says for all methods gives way to what it says for one, and both to the command line
        given = {key: value for key, value in shared.items() if key not in settings} | extra
        given = {key: value for key, value in given.items() if key in fields[method]}
        shape = {**choices, "method": method, "protocol": protocol, "settings": settings}
        wanted = [configure({**shape, "seed": seed}, given) for seed in range(seeds)]
        configs[name] = [known.setdefault(run_key(one.to_dict()), one) for one in wanted]
    return configs


def _label(group: list[RunConfig]) -> str:
    return label_of(group[0].to_dict())


def _tell_of_threads(results: Sequence[Result]) -> None:
    """Runs that `run` has made are taken as they are, though another number of threads may give other numbers."""
    others = [one for one in results if one.config["device"] == "cpu" and (one.threads or 1) > 1]
    if others:
        found = counted(len(others), "run found was", "runs found were")
        words = f"{found} made with more than the one thread of compare's own, and may have other numbers"
        typer.echo(f"corestream: {words}", err=True)


def _table(configs: dict[str, list[RunConfig]], made: Sequence[Result]) -> Table:
    condition = condition_of(next(iter(configs.values()))[0].to_dict())
    cells = {}
    for group in configs.values():
        digests = {config.digest() for config in group}
        own = [one for one in made if RunConfig.from_dict(one.config).digest() in digests]
        cells[_label(group), condition] = make_cell(own, expected=len(group))
    rows = tuple(label for label, _ in cells)
    return Table("compare", condition, rows, (condition,), ("accuracy", "forgetting"), cells)


def _plain(table: Table, configs: dict[str, list[RunConfig]], out: Path) -> dict[str, Any]:
    """For programs, by the names that they asked for: mean and sd of each metric, how many runs are in them, and where they are."""
    methods = {}
    for name, group in configs.items():
        cell = table.cells[_label(group), table.title]
        means = {metric: {"mean": found.mean, "sd": found.sd} for metric, found in cell.measured.items()}
        methods[name] = {
            **{metric: {"mean": None, "sd": None} for metric in table.metrics},
            **means,
            "protocol": group[0].protocol,
            "runs": cell.done,
            "expected": cell.expected,
            "diverged": cell.diverged,
            "failed": cell.failed,
            "folders": [str(out / config.digest()) for config in group],
        }
    return {"stream": table.title, "methods": methods}
