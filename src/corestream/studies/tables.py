"""Tables: what was measured, the paper's number beside it, and whether the two agree."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from corestream.errors import RunError
from corestream.messages import first_tasks
from corestream.studies.paper_numbers import Number
from corestream.studies.results import Result, differing_fields

Verdict = Literal["within", "within rounding", "better", "miss", "not comparable", ""]
LOWER_IS_BETTER = {"forgetting"}
# times, and what one method takes of another's, are those of a machine and a program, and the paper's are others
NEITHER_IS_BETTER = {"usage", "hours", "ratio"}


@dataclass(frozen=True)
class Measured:
    """Mean and sample standard deviation over runs; one run has no deviation."""

    mean: float
    sd: float | None
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> "Measured":
        sd = statistics.stdev(values) if len(values) > 1 else None
        return Measured(statistics.fmean(values), sd, len(values))


@dataclass(frozen=True)
class Cell:
    """One method under one condition: every metric over its runs, and what the paper says."""

    measured: Mapping[str, Measured] = field(default_factory=dict)
    paper: Mapping[str, Number] = field(default_factory=dict)
    expected: int = 0
    done: int = 0
    diverged: int = 0
    failed: int = 0
    not_comparable: str = ""  # the reason
    results: tuple[Result, ...] = ()

    def verdict(self, metric: str) -> Verdict:
        """Within the paper's mean ± 2 (own sd + paper's sd), better than that, or a miss; within rounding where it depends on the digits
        that the paper does not print."""
        if metric not in self.measured or metric not in self.paper or metric in NEITHER_IS_BETTER:
            return ""
        if self.not_comparable:
            return "not comparable"
        own, paper = self.measured[metric], self.paper[metric]
        apart = abs(own.mean - paper.mean)
        room = 2 * ((own.sd or 0.0) + (paper.sd or 0.0))
        if apart <= room:
            return "within"
        of_mean, of_sd = paper.rounding
        if apart <= room + of_mean + 2 * of_sd:
            return "within rounding"
        return "better" if (own.mean < paper.mean) == (metric in LOWER_IS_BETTER) else "miss"

    @property
    def first_done(self) -> Result | None:
        return next((result for result in self.results if result.status == "done"), None)

    @property
    def usual_device(self) -> str:
        """The one that most runs were made on."""
        devices = Counter(result.device for result in self.results if result.status == "done")
        return devices.most_common(1)[0][0] if devices else ""

    def hours_on(self, device: str) -> Measured | None:
        """The time of a run there."""
        seconds = [r.seconds for r in self.results if r.status == "done" and r.device == device]
        known = [value / 3600 for value in seconds if value is not None]
        return Measured.of(known) if known else None

    @property
    def runs(self) -> str:
        """How many runs are in the mean, and which are not: "4 (1 missing)"."""
        return f"{self.done}" + (f" ({self.holes})" if self.holes else "")

    @property
    def holes(self) -> str:
        """What is not in the mean: diverged, failed and missing runs."""
        missing = self.expected - self.done - self.diverged - self.failed
        parts = [(self.diverged, "diverged"), (self.failed, "failed"), (missing, "missing")]
        return ", ".join(f"{count} {word}" for count, word in parts if count > 0)


@dataclass(frozen=True)
class Table:
    """Rows by conditions; a cell the study does not have is absent."""

    name: str
    title: str
    rows: tuple[str, ...]
    conditions: tuple[str, ...]
    metrics: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]  # (row, condition)

    @property
    def whole(self) -> bool:
        """Every run that was asked for is in a mean."""
        return all(cell.done == cell.expected for cell in self.cells.values())

    @property
    def has_paper_numbers(self) -> bool:
        return any(cell.paper for cell in self.cells.values())


def make_cell(
    results: Sequence[Result],
    *,
    expected: int | None = None,
    paper: Mapping[str, Number] | None = None,
    not_comparable: str = "",
) -> Cell:
    """Average the runs that ended well; refuse runs whose configurations differ."""
    if different := differing_fields(results):
        raise RunError(
            f"these runs differ in {', '.join(different)}, so their mean would say nothing: "
            "give each configuration its own row or its own folder"
        )
    done = [result for result in results if result.status == "done"]
    if len(notes := {result.files_note for result in done}) > 1:
        found = "; ".join(note or "no sample" for note in sorted(notes))
        raise RunError(
            f"these runs were made from different files, so their mean would say nothing ({found}): give each kind its own folder"
        )
    values = [_metrics(result) for result in done]
    shared = [metric for metric in (values[0] if values else {}) if all(metric in value for value in values)]
    return Cell(
        measured={metric: Measured.of([value[metric] for value in values]) for metric in shared},
        paper=dict(paper or {}),
        expected=len(results) if expected is None else expected,
        done=len(done),
        diverged=sum(result.status == "diverged" for result in results),
        failed=sum(result.status == "failed" for result in results),
        not_comparable="; ".join(filter(None, [not_comparable, _why_not_comparable(results)])),
        results=tuple(results),
    )


def _metrics(result: Result) -> dict[str, float]:
    metrics = {"accuracy": 100 * float(result.accuracy["average_accuracy"])}
    # after a single task it is written as 0, where nothing could be forgotten
    if result.accuracy.get("forgetting") is not None and len(result.matrix) != 1:
        metrics["forgetting"] = float(result.accuracy["forgetting"])
    if result.seconds is not None:
        metrics["hours"] = result.seconds / 3600
    return metrics


def _why_not_comparable(results: Sequence[Result]) -> str:
    reasons = []
    cut = [int(result.config["tasks"]) for result in results if result.config.get("tasks") is not None]
    if cut:
        reasons.append(f"only the {first_tasks(min(cut))}")
    reasons += sorted({result.files_note for result in results if result.files_note})
    return "; ".join(reasons)
