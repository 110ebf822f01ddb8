"""A set of configurations: which of their runs are there, making the missing ones, reading them all."""

import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from corestream.errors import ConfigError, CorestreamError, CorestreamWarning, RunError
from corestream.studies.config import RunConfig, read_config, written_digest
from corestream.studies.drive import Options
from corestream.studies.events import read_events
from corestream.studies.execute import execute, read_accuracy
from corestream.studies.lockstep import make_runs_together
from corestream.studies.pool import Outcome, Watcher, make_runs
from corestream.studies.results import Result

YEAR_9999 = 253_370_764_800  # in seconds since 1970
LANES = 30  # runs side by side on one card: measured, see docs/PERFORMANCE.md


def make_alone(config: RunConfig, out: Path, options: Options, watcher: Watcher) -> dict[str, Any]:
    """One run in this process, by captured steps where it is on a card; as `execute`, it raises what keeps the run from its end."""
    if config.device != "cuda":
        return execute(config, out, options, report=partial(watcher.progressed, config))
    folder = out / config.digest()
    found = read_accuracy(folder, config)
    if found is None:
        (outcome,) = make_runs_together([config], out, lanes=1, options=options, watcher=watcher)
        if outcome.cause is not None:
            raise outcome.cause
        found = read_accuracy(folder, config)
        assert found is not None
    return found


class RunSet:
    """The runs of these configurations under one folder."""

    def __init__(self, configs: Iterable[RunConfig], out: Path) -> None:
        self.configs = list({config.digest(): config for config in configs}.values())
        self.out = out
        self._refused: dict[str, Result] = {}  # they leave no folder

    def missing(self) -> list[RunConfig]:
        """Those that are not there yet, or not to their end."""
        return [config for config in self.configs if self._is_missing(config)]

    def _is_missing(self, config: RunConfig) -> bool:
        """A damaged one is not: nobody's work is overwritten."""
        try:
            return read_accuracy(self.out / config.digest(), config) is None
        except CorestreamError:
            return False

    def make(
        self, *, jobs: int | None = None, options: Options | None = None, watcher: Watcher | None = None
    ) -> list[Outcome]:
        """Make the missing runs, `jobs` at a time: otherwise as many as there are cores, or as a card takes side by side.

        Raises ConfigError where every run is refused for its configuration.
        """
        if jobs is not None and jobs < 1:
            raise ConfigError(f"jobs is {jobs}; at least 1 is needed")
        missing = self.missing()
        if not missing:
            return []
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.out}: no run can be kept there ({error.strerror})") from error
        on_card = [config for config in missing if config.device == "cuda"]
        elsewhere = [config for config in missing if config.device != "cuda"]
        outcomes = []
        if on_card:  # one process fills the card
            outcomes += make_runs_together(
                on_card, self.out, lanes=jobs or LANES, options=options, watcher=watcher
            )
        if elsewhere:
            outcomes += make_runs(elsewhere, self.out, jobs=jobs or cores(), options=options, watcher=watcher)
        if outcomes and all(one.refused for one in outcomes):
            raise ConfigError(outcomes[0].error.removeprefix(f"{ConfigError.__name__}: "))
        for one in outcomes:
            if one.status == "failed" and not (self.out / one.config.digest()).exists():
                self._refused[one.config.digest()] = Result(one.config.to_dict(), {}, "failed", one.error)
        return outcomes

    def results(self) -> list[Result]:
        """What the runs found, failed ones included, and damaged ones as such, with a warning; those never begun or still under way are
        left out."""
        return [result for result in map(self._result, self.configs) if result is not None]

    def _result(self, config: RunConfig) -> Result | None:
        folder = self.out / config.digest()
        try:
            return read_run(folder, config) or self._refused.get(config.digest())
        except CorestreamError as error:
            warnings.warn(f"a run counts as failed: {error}", CorestreamWarning, stacklevel=2)
            return Result(config.to_dict(), {}, "failed", str(error), folder=folder)


def read_run(folder: Path, config: RunConfig | None = None) -> Result | None:
    """The result in a run's folder, None where it has neither ended nor failed.

    It must be that of `config`; where none is asked for, that of the folder's own, by whichever format it was made.
    """
    path = folder / "config.json"
    if path.exists():
        written, environment = read_config(path)
    elif config is not None and read_accuracy(folder, config) is not None:
        written, environment = config, {}  # a result knows whose it is
    else:
        return _failed_before_it_began(folder, config)
    digest = written_digest(path) if config is None else config.digest()
    accuracy = read_accuracy(folder, digest)
    try:
        events = read_events(folder)
    except RunError as error:
        if accuracy is None:
            raise
        # a result needs no log
        warnings.warn(f"how long a run took is not known: {error}", CorestreamWarning, stacklevel=2)
        events = []
    threads = environment.get("threads")
    made: dict[str, Any] = {
        "device": str(environment.get("device", "")),
        "folder": folder,
        "older": config is None and digest != written.digest(),
        "threads": threads if isinstance(threads, int) else None,
        "made": _last_time(events),
    }
    if accuracy is None:
        note = _failure(events)
        return None if note is None else Result(written.to_dict(), {}, "failed", note, **made)
    return Result(
        written.to_dict(),
        accuracy,
        accuracy["status"],
        str(accuracy.get("note", "")),
        str(accuracy.get("files_note", "")),
        seconds=_seconds(events),
        **made,
    )


def unfinished_runs(out: Path) -> dict[Path, RunConfig]:
    """The runs under a folder that were begun and have neither ended nor failed: interrupted, killed, or at work now."""
    begun = {}
    for path in sorted(out.glob("*/config.json")):
        with suppress(CorestreamError):  # a damaged one is named by `read_runs`
            if not (path.parent / "accuracy.json").exists() and read_run(path.parent) is None:
                begun[path.parent], _ = read_config(path)
    return begun


def read_runs(out: Path) -> list[Result]:
    """Every run under a folder that has ended or failed; one that is damaged is named in a warning and left out."""
    files = ("config.json", "accuracy.json")
    folders = sorted({path.parent for name in files for path in out.glob(f"*/{name}")})
    return [result for result in map(_readable, folders) if result is not None]


def _readable(folder: Path) -> Result | None:
    try:
        if not (folder / "config.json").exists():
            raise RunError(f"{folder} has a result and no config.json, which says whose it is")
        return read_run(folder)
    except CorestreamError as error:
        warnings.warn(f"a run is left out: {error}", CorestreamWarning, stacklevel=2)
        return None


def cores() -> int:
    """How many processes can work at once here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _failed_before_it_began(folder: Path, config: RunConfig | None) -> Result | None:
    note = _failure(read_events(folder)) if folder.exists() else None
    return (
        None
        if note is None or config is None
        else Result(config.to_dict(), {}, "failed", note, folder=folder)
    )


def _failure(events: list[dict[str, object]]) -> str | None:
    """Why the run failed, where that is the last thing that happened to it."""
    ends = [event for event in events if event["event"] in ("started", "resumed", "interrupted", "failed")]
    return str(ends[-1].get("error", "")) if ends and ends[-1]["event"] == "failed" else None


def _last_time(events: list[dict[str, object]]) -> float | None:
    """None where no event has a time that could be a date."""
    times = (event.get("time") for event in events)
    return max(
        (time for time in times if isinstance(time, int | float) and 0 < time < YEAR_9999), default=None
    )


def _seconds(events: list[dict[str, object]]) -> float | None:
    """The time spent on each task; what a kill threw away is not counted. None without a log."""
    if not events:
        return None
    spent = {event.get("task"): event.get("seconds") for event in events if event["event"] == "task"}
    return sum(float(seconds) for seconds in spent.values() if isinstance(seconds, int | float))
