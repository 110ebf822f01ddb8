"""The loop around a run's steps: checkpoints, signals, progress, logs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from corestream.studies.events import EventLog, seconds_in_task
from corestream.studies.loggers import Logger
from corestream.studies.metrics import peak_bytes
from corestream.studies.run import Run
from corestream.studies.stopping import Interrupted, StopRequest

CHECKPOINT_STEPS = 1000
CHECKPOINT_SECONDS = 60.0
REPORT_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is made, which is no part of its digest. Only `threads` can move its numbers: another number of them adds in another
    order, and a method that picks samples may then pick others."""

    data_dir: Path | None = None
    offline: bool = False
    checkpoint_steps: int | None = None  # None: 1,000, but on a card none by their number
    loggers: tuple[str, ...] = ()
    threads: int | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is; `accuracy` is the average over the tasks learned so far."""

    task: int
    tasks: int
    share: float
    seconds_left: float | None
    accuracy: float | None
    task_closed: bool = False


Report = Callable[[Progress], None]


class Driver:
    """Leads one run step by step to its end, or to the signal that stops it."""

    def __init__(
        self,
        run: Run,
        options: Options,
        events: EventLog,
        stop: StopRequest,
        report: Report | None = None,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.run, self.options, self.events, self.stop = run, options, events, stop
        self._report, self._loggers = report, loggers
        now = time.monotonic()
        self._began_at, self._began_share = now, run.share_done
        self._saved_at, self._saved_step = now, run.position.step
        self._reported_at = now
        self._task_began_at = now - seconds_in_task(run.folder, run.position.step)

    def drive(self) -> None:
        while not self.run.finished:
            self.after_step(self.run.step())

    def after_step(self, closed: bool) -> None:
        """What is due after a step, which may have closed a task."""
        now = time.monotonic()
        if closed:
            self.note_task(now)
        if closed or now - self._reported_at > REPORT_SECONDS:
            self._tell(now, closed)
        if self.stop.signum is not None:
            self._stop(self.stop.signum)
        if closed or self._checkpoint_due(now):
            self.save()

    def is_due(self) -> bool:
        """Whether a signal or a checkpoint waits for the end of a step."""
        return self.stop.signum is not None or self._checkpoint_due(time.monotonic())

    def save(self) -> None:
        """A checkpoint never holds a state that has diverged."""
        began = time.monotonic()
        self.run.check()
        self.run.save()
        self._saved_at, self._saved_step = time.monotonic(), self.run.position.step
        self.events.write(
            "checkpoint",
            step=self._saved_step,
            seconds=round(self._saved_at - began, 4),
            task_seconds=round(self._saved_at - self._task_began_at, 3),
        )

    def _stop(self, signum: int) -> None:
        self.save()
        task = min(self.run.position.task + 1, len(self.run.training))
        raise Interrupted(
            signum,
            f"interrupted at task {task}, step {self.run.position.step}; "
            "the same command continues from here",
        )

    def _checkpoint_due(self, now: float) -> bool:
        steps, due = self.run.position.step - self._saved_step, self.options.checkpoint_steps
        return steps >= (due or CHECKPOINT_STEPS) or now - self._saved_at > CHECKPOINT_SECONDS

    def note_task(self, now: float) -> None:
        """Tell the log and the loggers what the closed task's tests found."""
        run, task = self.run, self.run.position.task - 1
        row = run.ledger.matrix[run.ledger.learned - 1]
        averages = {name: value for name, value in run.ledger.averages().items() if value is not None}
        self.events.write(
            "task",
            task=task,
            step=run.position.step,
            accuracies=row[: run.ledger.learned],
            seconds=round(now - self._task_began_at, 3),
            peak_bytes=peak_bytes(torch.device(run.config.device)),
            **averages,
        )
        for logger in self._loggers:
            accuracies = {f"accuracy/task {i}": value for i, value in enumerate(row) if value is not None}
            logger.log(run.position.step, {**averages, **accuracies})
        self._task_began_at = now

    def _tell(self, now: float, closed: bool) -> None:
        self._reported_at = now
        if self._report is None:
            return
        run = self.run
        share = run.share_done
        gained = share - self._began_share
        left = (now - self._began_at) / gained * (1 - share) if gained > 0 else None
        accuracy = run.ledger.averages()["average_accuracy"]
        tasks = len(run.training)
        self._report(Progress(run.position.task, tasks, share, left, accuracy, closed))
