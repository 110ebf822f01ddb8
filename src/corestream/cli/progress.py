"""Progress on stderr: bars with accuracy and time left on a terminal, plain lines elsewhere."""

import os
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import IO, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from corestream.messages import counted
from corestream.studies.config import RunConfig
from corestream.studies.drive import Progress
from corestream.studies.grouping import condition_of, label_of
from corestream.studies.pool import Outcome, Watcher


class PatientStream:
    """A stream whose reader may go, or whose disk may fill: what cannot be told is not told, and the runs go on."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._let_go()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._let_go()

    def _let_go(self) -> None:
        with suppress(OSError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())  # what is still in its buffer goes there too

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class RunDisplay(Watcher):
    """One line or bar per run at work, and one for all of them where there are several."""

    def __init__(self, total: int = 1) -> None:
        self._console = Console(file=PatientStream(sys.stderr))  # type: ignore[arg-type]
        self._live = self._console.is_terminal
        self._total, self._ended = total, 0
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[news]}"),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
        self._of: dict[str, TaskID] = {}
        self._shares: dict[str, float] = {}
        self._told: set[str] = set()
        self._failed: dict[tuple[str, str], list[RunConfig]] = {}  # what went wrong, and where
        self._began = time.monotonic()
        self._all = self._bars.add_task("all runs", total=total, news="", visible=total > 1)

    def __enter__(self) -> "RunDisplay":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:  # some versions of rich end even what they do not show with an empty line
            self._bars.stop()
        for first, *others in self._failed.values():
            if others:
                self._line(f"{title(first)}: … and {counted(len(others), 'more run')} likewise")

    def began(self, config: RunConfig) -> None:
        self._of[config.digest()] = self._bars.add_task(escape(title(config)), total=1.0, news="")

    def progressed(self, config: RunConfig, progress: Progress) -> None:
        if config.digest() not in self._of:
            self.began(config)
        found = _accuracy(progress.accuracy) + _left(progress.seconds_left)
        news = f"task {min(progress.task + 1, progress.tasks)}/{progress.tasks}{found}"
        self._bars.update(self._of[config.digest()], completed=progress.share, news=news)
        self._shares[config.digest()] = progress.share
        self._tell_all()
        if progress.task_closed and not self._live and self._total == 1:
            self._line(f"{title(config)}: task {progress.task}/{progress.tasks} done{found}")

    def ended(self, outcome: Outcome) -> None:
        self._ended += 1
        if (bar := self._of.pop(outcome.config.digest(), None)) is not None:
            self._bars.remove_task(bar)
        self._shares.pop(outcome.config.digest(), None)
        self._tell_all()
        found = _accuracy(outcome.accuracy)
        if not found:
            found = f", {_without_accuracy(outcome)}"
            alike = self._failed.setdefault((outcome.status, outcome.error), [])
            alike.append(outcome.config)
            if len(alike) > 1:  # told once, and at the end how often
                return
        self._line(f"[{self._ended}/{self._total}] {title(outcome.config)}{found}")

    def warned(self, config: RunConfig, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._line(f"{title(config)}: {text}")

    def fell_back(self, config: RunConfig, reason: str) -> None:
        if reason not in self._told:  # by one of the runs for all
            self._told.add(reason)
            self._line(f"{title(config)}: its steps are not captured, and take longer: {reason}")

    def _tell_all(self) -> None:
        done = self._ended + sum(self._shares.values())
        left = (time.monotonic() - self._began) * (self._total - done) / done if done else None
        news = f"{self._ended}/{self._total} runs{_left(left)}"
        self._bars.update(self._all, completed=done, news=news)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def title(config: RunConfig) -> str:
    """A run in a few words, which tell it from the others of its study."""
    plain = config.to_dict()
    return f"{label_of(plain)} on {condition_of(plain)}, seed {config.seed}"


def _without_accuracy(outcome: Outcome) -> str:
    """What became of a run that found nothing, and why where that is known."""
    return f"{outcome.status}: {outcome.error}" if outcome.error else outcome.status


def _accuracy(share: float | None) -> str:
    return "" if share is None else f", accuracy {100 * share:.1f} %"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f", {minutes} min {rest:02d} s left" if minutes else f", {rest} s left"
