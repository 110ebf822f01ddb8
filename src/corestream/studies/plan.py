"""From a study to its runs, and from results back to its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corestream.errors import ConfigError
from corestream.studies import paper_numbers
from corestream.studies.config import RunConfig, make_config
from corestream.studies.design import Condition, Row, Study
from corestream.studies.files import canonical
from corestream.studies.partial import share_of_gradients
from corestream.studies.results import Result, shared
from corestream.studies.tables import Cell, Measured, Table, make_cell

Place = tuple[str, str]  # row label, condition key

RunKey = tuple[bytes, int]


@dataclass(frozen=True)
class Plan:
    """The configurations of every cell of a study, one per seed."""

    study: Study
    configs: Mapping[Place, tuple[RunConfig, ...]]

    def all_configs(self) -> list[RunConfig]:
        """Each once: rows of one study may share their runs."""
        return list({config.digest(): config for cell in self.configs.values() for config in cell}.values())

    def table(self, results: Iterable[Result]) -> Table:
        """The study's table from whichever of its runs the results hold."""
        known = {run_key(result.config): result for result in results}
        cells = {}
        for row, condition in self.study.cells():
            place = (row.label, condition.key)
            wanted = {run_key(config.to_dict()): config for config in self.configs[place]}
            found = [_under(known[key], config) for key, config in wanted.items() if key in known]
            where = self.study.name, condition.key, row.paper_label
            paper, reservation = paper_numbers.cell(*where), paper_numbers.reservation(*where)
            cells[place] = make_cell(found, expected=len(wanted), paper=paper, not_comparable=reservation)
        if "ratio" in self.study.metrics:
            cells = _with_ratios(cells)
        if "usage" in self.study.metrics:
            cells = _with_usage(cells, self.configs)
        return Table(
            self.study.name,
            self.study.title,
            tuple(row.label for row in self.study.rows),
            tuple(condition.key for condition in self.study.conditions),
            self.study.metrics,
            cells,
        )


def make_plan(study: Study, seeds: Sequence[int], *, device: str = "cpu", tasks: int | None = None) -> Plan:
    """Every cell's configuration, validated, for each seed: the study's own where it has any."""
    configs, seeds, tasks = {}, study.seeds or seeds, study.tasks if tasks is None else tasks
    for row, condition in study.cells():
        config = _configure(row, condition, device=device, tasks=tasks)
        if "usage" in study.metrics and config.settings["network"] != "resnet18":
            raise ConfigError(
                f"{study.name} selects by the blocks of a ResNet-18, which {condition.benchmark} is not learned with; "
                "give --benchmark split-tinyimagenet, split-cifar100 or multi-datasets"
            )
        configs[row.label, condition.key] = tuple(replace(config, seed=seed) for seed in seeds)
    _check_axis(study, configs)
    return Plan(study, configs)


def _check_axis(study: Study, configs: Mapping[Place, Sequence[RunConfig]]) -> None:
    """A figure over a setting can only draw rows that have a place on its axis."""
    if study.kind == "memory sizes":
        axis = "the memory's capacity"
        without = [row for (row, _), some in configs.items() if some and "capacity" not in some[0].settings]
    elif study.kind == "interpolation":
        axis = "α, the weight of S beside that of V"
        without = [row.label for row in study.rows if "weights" not in row.settings]
    else:
        return
    if without:
        rows = ", ".join(dict.fromkeys(without))
        raise ConfigError(f"{study.name} is drawn over {axis}, on which these rows have no place: {rows}")


def identity(config: Mapping[str, Any]) -> bytes:
    """Equal for results that belong into one cell of a table."""
    return canonical(shared(config))


def run_key(config: Mapping[str, Any]) -> RunKey:
    """Equal for two makings of the same run."""
    return identity(config), int(config["seed"])


def _configure(row: Row, condition: Condition, **choices: Any) -> RunConfig:
    def config(settings: Mapping[str, Any]) -> RunConfig:
        return make_config(
            condition.benchmark,
            row.method,
            overrides=settings,
            imbalanced=condition.imbalanced,
            noise=condition.noise,
            label_noise=condition.label_noise,
            scenario=condition.scenario,
            protocol=row.protocol,
            **choices,
        )

    plain = config(row.settings)
    if row.times_capacity == 1:
        return plain
    return config({**row.settings, "capacity": row.times_capacity * plain.settings["capacity"]})


def _under(result: Result, config: RunConfig) -> Result:
    """The result as the row's own: the same settings may have been reached from another protocol."""
    return replace(result, config={**result.config, "protocol": config.protocol})


def _with_ratios(cells: Mapping[Place, Cell]) -> dict[Place, Cell]:
    """Time, and time relative to OCS under the same condition, of runs on the device that most of OCS's were made on."""
    timed = {}
    for (row, condition), cell in cells.items():
        ocs = cells.get(("ocs", condition), Cell())
        device = ocs.usual_device or cell.usual_device
        own, reference = cell.hours_on(device), ocs.hours_on(device)
        measured = {name: value for name, value in cell.measured.items() if name != "hours"}
        if own:
            measured["hours"] = own
            if reference and reference.mean > 0:
                measured["ratio"] = Measured(own.mean / reference.mean, None, own.count)
        timed[row, condition] = replace(cell, measured=measured)
    return timed


def _with_usage(
    cells: Mapping[Place, Cell], configs: Mapping[Place, Sequence[RunConfig]]
) -> dict[Place, Cell]:
    used = {}
    for place, cell in cells.items():
        settings, measured = configs[place][0].settings, dict(cell.measured)
        if "parameters" in settings:  # the method selects by gradients
            measured["usage"] = Measured(100 * share_of_gradients(settings), None, cell.done)
        used[place] = replace(cell, measured=measured)
    return used
