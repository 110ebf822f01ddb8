"""What a study is: rows (methods with their settings) under conditions (streams)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from corestream.studies.config import description, has_settings


@dataclass(frozen=True)
class Condition:
    """A stream: a benchmark and what is done to it. Its key is what one types on the command line."""

    benchmark: str
    imbalanced: bool = False
    noise: float = 0.0
    label_noise: float = 0.0
    scenario: str | None = None

    @property
    def key(self) -> str:
        parts = [self.benchmark]
        parts += [f"--scenario {self.scenario}"] if self.scenario else []
        parts += ["--imbalanced"] if self.imbalanced else []
        parts += [f"--noise {self.noise:g}"] if self.noise else []
        parts += [f"--label-noise {self.label_noise:g}"] if self.label_noise else []
        return " ".join(parts)

    def moved_to(self, benchmark: str) -> Condition:
        """The same on another benchmark; a scenario that it does not have is left out."""
        has = self.scenario in description(benchmark).scenarios
        return replace(self, benchmark=benchmark, scenario=self.scenario if has else None)


@dataclass(frozen=True)
class Row:
    """A method under a label; `settings` replaces its own, `times_capacity` enlarges its memory.

    `protocol` is whose settings it starts from: the paper's, OCS's schedule, or the best known here.
    """

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    times_capacity: int = 1
    protocol: str = "paper"

    @property
    def paper_label(self) -> str:
        """The paper's row to compare with: the same for every protocol."""
        return self.label.partition(":")[0]


Kind = Literal[
    "table", "search", "settings", "curves", "memory sizes", "interpolation", "kept pictures", "t-SNE"
]


@dataclass(frozen=True)
class Study:
    """A table or figure made from runs: every row under every condition, over the first `tasks` tasks, with seeds of its own if any."""

    name: str
    title: str
    rows: tuple[Row, ...]
    conditions: tuple[Condition, ...]
    kind: Kind = "table"
    metrics: tuple[str, ...] = ("accuracy", "forgetting")
    tasks: int | None = None
    seeds: tuple[int, ...] | None = None

    @property
    def is_timed(self) -> bool:
        """Whether its runs are to be made one after the other, each alone."""
        return "hours" in self.metrics

    @property
    def is_figure(self) -> bool:
        return self.kind not in ("table", "search", "settings")

    def cells(self) -> Iterator[tuple[Row, Condition]]:
        return ((row, condition) for condition in self.conditions for row in self.rows)

    def on(self, benchmark: str) -> Study:
        """The study's conditions of one benchmark; where it has none there, all of them moved to it, without the best settings
        that were searched elsewhere."""
        own = tuple(condition for condition in self.conditions if condition.benchmark == benchmark)
        moved = dict.fromkeys(condition.moved_to(benchmark) for condition in self.conditions)
        rows = tuple(row for row in self.rows if has_settings(row.method, benchmark, row.protocol))
        return replace(self, rows=rows, conditions=own or tuple(moved))

    def with_methods(self, names: Sequence[str]) -> Study:
        """Only these rows, by label, else by method; a method the study does not have becomes a new row."""
        rows: dict[str, Row] = {}
        for name in names:
            labelled = [row for row in self.rows if row.label == name]
            found = labelled or [row for row in self.rows if row.method == name] or [row_named(name)]
            rows |= {row.label: row for row in found}
        return replace(self, rows=tuple(rows.values()))


def row_named(name: str) -> Row:
    """`uniform`, or `uniform:ocs-schedule` for another protocol than the paper's."""
    method, _, protocol = name.partition(":")
    return Row(name, method, protocol=protocol or "paper")


def row_name(method: str, protocol: str) -> str:
    """What `row_named` reads; the paper's protocol is not said."""
    return method if protocol == "paper" else f"{method}:{protocol}"
