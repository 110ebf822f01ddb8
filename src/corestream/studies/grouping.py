"""A table out of any results: equal configurations share a cell, different ones get rows of their own.

A row is named after its method and the settings that are not the method's own, so that it means the same under every condition.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from corestream import learners
from corestream.studies import paper_numbers
from corestream.studies.commands import given_settings, in_words, own_words, unusual_choices
from corestream.studies.config import RunConfig
from corestream.studies.design import Condition, row_name
from corestream.studies.plan import identity
from corestream.studies.results import Result, differing, shared
from corestream.studies.tables import Table, make_cell

# where the paper has a method's number under a condition; the first that has it is taken
PAPER_TABLES = ("table1", "table2", "table3", "table6", "class-incremental", "uniform-ocs")


def table_of(
    results: Sequence[Result],
    *,
    title: str = "Comparison",
    expected: int | None = None,
) -> Table:
    """Methods down, conditions across; `expected` is the number of seeds asked for."""
    groups = _groups(sorted(results, key=lambda result: place_of(result.config)))
    labels = _labels(groups)
    row_places = {labels[key]: (*_row_place(group[0].config), labels[key]) for key, group in groups.items()}
    cells = {}
    for key, group in groups.items():
        row, config = labels[key], group[0].config
        condition = condition_of(config)
        paper, reservation = (
            ({}, "") if _own(config) else _paper(row, condition_of({**config, "tasks": None}))
        )
        cells[row, condition] = make_cell(
            one_each(group), expected=expected, paper=paper, not_comparable=reservation
        )
    rows = tuple(sorted(row_places, key=lambda row: row_places[row]))
    conditions = tuple(dict.fromkeys(condition for _, condition in cells))
    places = [(row, condition) for condition in conditions for row in rows if (row, condition) in cells]
    cells = {place: cells[place] for place in places}
    return Table("comparison", title, rows, conditions, ("accuracy", "forgetting"), cells)


def condition_of(config: Mapping[str, Any]) -> str:
    """The stream of a configuration, spelled as on the command line."""
    scenario, unusual = unusual_choices(config)
    condition = Condition(
        str(config["benchmark"]),
        bool(config.get("imbalanced", False)),
        float(config.get("noise", 0.0)),
        float(config.get("label_noise", 0.0)),
        scenario,
    )
    tasks = [f"--tasks {config['tasks']}"] if config.get("tasks") else []
    options = [f"--{name.replace('_', '-')} {value}" for name, value in unusual.items()]
    return " ".join([condition.key, *tasks, *options])


def label_of(config: Mapping[str, Any]) -> str:
    """The method's name with the settings that are not its own."""
    return _with(row_name(str(config["method"]), str(config.get("protocol", "paper"))), _own(config))


def place_of(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """A run's place among others: whole streams before those that are cut, of each the balanced one, the imbalanced one, noise and
    flipped labels; then methods; then seeds."""
    return (
        str(config["benchmark"]),
        str(config.get("scenario")),
        _by_value(config.get("options", {})),
        int(config.get("tasks") or 0),
        float(config.get("label_noise", 0.0)),
        float(config.get("noise", 0.0)),
        bool(config.get("imbalanced")),
        *_method_place(config),
        int(config["seed"]),
    )


def _row_place(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """Of each method the row with its own settings first, the others by their values."""
    given = given_settings(RunConfig.from_dict(config))
    return *_method_place(config), _by_value(config.get("settings", {}) if given is None else given)


def _method_place(config: Mapping[str, Any]) -> tuple[int, str, bool, str]:
    """Methods as `corestream list methods` has them, the paper's settings before others that may equal them."""
    method, protocol, known = str(config["method"]), str(config.get("protocol", "paper")), learners.names()
    return known.index(method) if method in known else len(known), method, protocol != "paper", protocol


def _by_value(choices: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(name, *_value_place(value)) for name, value in sorted(choices.items())]


def _value_place(value: Any) -> tuple[Any, ...]:
    """Numbers in the order of numbers, before anything else."""
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else 0, str(value)


def _groups(results: Sequence[Result]) -> dict[bytes, list[Result]]:
    groups: dict[bytes, list[Result]] = defaultdict(list)
    for result in results:
        groups[identity(result.config) + result.files_note.encode()].append(result)
    return groups


def _labels(groups: Mapping[bytes, Sequence[Result]]) -> dict[bytes, str]:
    """The method's name with its settings of its own; where that leaves two rows the same name, with all that parts them."""
    named: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for key, group in groups.items():
        config = group[0].config
        named[condition_of(config), label_of(config)].append(key)
    labels: dict[bytes, str] = {}
    for (_, name), keys in named.items():
        parted = _parted([groups[key] for key in keys])
        labels |= {key: _with(name, words) for key, words in zip(keys, parted, strict=True)}
    return labels


def _parted(groups: Sequence[Sequence[Result]]) -> list[list[str]]:
    """What parts groups of one name, in words; the newest version of the user's own code or pictures needs none."""
    configs = [{**shared(group[0].config), "files": group[0].files_note or "whole"} for group in groups]
    ages = _ages(groups)
    if ages is None:
        return told_apart(configs)
    versions = [config.pop("fingerprint", "") for config in configs]
    return [
        [*filter(None, [ages[version]]), *words]
        for version, words in zip(versions, told_apart(configs), strict=True)
    ]


def _ages(groups: Sequence[Sequence[Result]]) -> dict[str, str] | None:
    """When the runs of each older fingerprint were made; None where that is not known, or does not tell them apart."""
    last: dict[str, float] = defaultdict(float)
    for result in (result for group in groups for result in group):
        version = result.config.get("fingerprint", "")
        last[version] = max(last[version], result.made or 0.0)
    newest = max(last, key=lambda version: last[version])
    ages = {version: f"older version, run {_date(made)}" for version, made in last.items()} | {newest: ""}
    return ages if all(last.values()) and len(set(ages.values())) == len(ages) else None


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def told_apart(configs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """For each of the configurations that have one name, in words, what they differ in."""
    return [
        [in_words(field.rpartition(".")[2], value) for field, value in fields.items()]
        for fields in differing(configs)
    ]


def _own(config: Mapping[str, Any]) -> list[str]:
    return own_words(RunConfig.from_dict(config))


def _with(name: str, words: Sequence[str]) -> str:
    return f"{name} ({', '.join(words)})" if words else name


def one_each(group: Sequence[Result]) -> list[Result]:
    """One run per seed: the same run made on two devices counts once; one of now before an older one, one that is done before others."""
    found: dict[int, Result] = {}
    for result in sorted(group, key=lambda one: (one.older, one.status != "done")):
        found.setdefault(result.seed, result)
    return [found[seed] for seed in sorted(found)]


def _paper(row: str, condition: str) -> tuple[dict[str, paper_numbers.Number], str]:
    method = row.partition(" ")[0].partition(":")[0]
    for table in PAPER_TABLES:
        if cell := paper_numbers.cell(table, condition, method):
            return cell, paper_numbers.reservation(table, condition, method)
    return {}, ""
