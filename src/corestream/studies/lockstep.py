"""Several runs at once in one process: step by step in turn, on CUDA each as a graph on a stream of its own.

A step of a small network is hundreds of tiny kernels; launching them costs more than they do. After a few ordinary steps of a task
the next one is captured, the choice of its batch included, and from then on a step is one launch. The runs' kernels fill the card
side by side. The code that learns is the ordinary one, its small operations fused where a compiler is there; a run that cannot be
captured goes on by ordinary steps and says so.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from corestream.errors import ConfigError, CorestreamError, DataError, NonFiniteError
from corestream.studies import execute
from corestream.studies.captured import (
    TRIES,
    WARM_UP,
    CapturedEvaluations,
    CapturedStep,
    Cursor,
    LaneContext,
    make_room,
)
from corestream.studies.config import RunConfig
from corestream.studies.drive import Driver, Options, Progress
from corestream.studies.environment import set_up_card
from corestream.studies.events import EventLog
from corestream.studies.locks import LockedError, locked
from corestream.studies.loggers import let_go, make_loggers
from corestream.studies.pool import Outcome, Watcher, ended
from corestream.studies.pump import Job, Pump
from corestream.studies.run import Run
from corestream.studies.stopping import Interrupted, StopRequest

WARM_UP_LATER = (
    1  # ordinary steps before one is captured in the tasks after the first, where only the memory is new
)
BURST = 300  # steps of one run handed to the pump at once
ROW = 4  # steps captured in one graph: launches cost a slow host more than the card needs for a step, captures cost time as well
BUNDLE = 8  # steps of a run that are launched at a time; two bundles are under way
ROW_PAYS_FROM = 2000  # steps of a task from which on it pays to capture a row of them
STREAMS = 32  # that torch has
PAUSE = 0.0005  # seconds until the next look, where all runs wait for the card
# steps between checkpoints, beside those by time and at a task's end: each one waits for the card
NEVER = 2**62


def make_runs_together(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    lanes: int,
    options: Options | None = None,
    watcher: Watcher | None = None,
) -> list[Outcome]:
    """Make the runs, `lanes` of them at a time. SIGINT and SIGTERM raise Interrupted after checkpoints."""
    options = options or Options()
    options = replace(options, checkpoint_steps=options.checkpoint_steps or NEVER)
    watcher = watcher or Watcher()
    waiting, outcomes, working = deque(configs), [], list[Lane]()
    set_up_card()
    # where there is no card each run is refused as it begins
    on_card = sum(config.device == "cuda" for config in configs) if torch.cuda.is_available() else 0
    # taken once: torch has few streams and gives them out again and again, and one that is captured can serve no other run
    streams = [torch.cuda.Stream() for _ in range(min(lanes, on_card, STREAMS))]
    lanes = min(lanes, STREAMS)

    def settle(lane: Lane, outcome: Outcome) -> None:
        working.remove(lane)
        if lane.stream is not None:
            streams.append(lane.stream)
        outcomes.append(outcome)
        watcher.ended(outcome)

    with StopRequest() as stop, Pump() as pump:
        try:
            while waiting or working:
                while waiting and len(working) < lanes:
                    config = waiting.popleft()
                    stream = streams.pop() if on_card and config.device == "cuda" else None
                    lane = Lane(config, out, options, stop, watcher, pump, stream)
                    working.append(lane)
                    if (outcome := lane.guarded(lane.begin)) is not None:
                        settle(lane, outcome)
                ready = [lane for lane in working if not lane.waits_for_card()]
                for lane in ready:
                    if (outcome := lane.guarded(lane.step)) is not None:
                        settle(lane, outcome)
                if not ready:
                    time.sleep(PAUSE)
        except Interrupted:
            for lane in working:
                lane.interrupt()
            raise
    return outcomes


class Lane:
    """One of the runs, with its stream of kernels and its own share of torch's randomness."""

    def __init__(
        self,
        config: RunConfig,
        out: Path,
        options: Options,
        stop: StopRequest,
        watcher: Watcher,
        pump: Pump,
        stream: torch.cuda.Stream | None,
    ) -> None:
        self.config, self.folder = config, out / config.digest()
        self._options, self._stop, self._watcher, self._pump = options, stop, watcher, pump
        self._resources = ExitStack()
        self.stream, self._context = stream, LaneContext(stream, config.seed, self._launch)
        self._fresh = False  # nothing was there before this run
        self._is_refused = False
        self._run: Run | None = None
        self._driver: Driver | None = None
        self._cursor: Cursor | None = None
        self._job: Job | None = None
        self._captured: dict[int, CapturedStep] = {}  # by the size of the batch
        self._row: CapturedStep | None = None
        self._ordinary: dict[int, tuple[Hashable, int]] = {}  # likewise: phase, and ordinary steps in it
        self._capturable = config.device != "cpu" and not config.record
        self._tries_left, self._warm_up = TRIES, WARM_UP

    def begin(self) -> Outcome | None:
        self._watcher.began(self.config)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._resources.enter_context(locked(self.folder))
        self._resources.callback(self._discard_refused)
        if (found := execute.read_accuracy(self.folder, self.config)) is not None:
            return self._close(ended(self.config, found))
        self._events, self._fresh = EventLog(self.folder), execute.is_fresh(self.folder)
        with self._context.active():
            self._run = execute.begin(self.config, self.folder, self._options, self._events)
        if self.stream is not None:
            self._run.evaluator = CapturedEvaluations(self._context)
            if self.config.record:
                self._tell_not_captured(f"it records {', '.join(self.config.record)} at each step")
            elif not self._run.learner.capturable:
                self._capturable = False
                self._tell_not_captured(
                    f"{type(self._run.learner).__name__} does not say `capturable = True`"
                )

        def report(progress: Progress) -> None:
            self._watcher.progressed(self.config, progress)

        loggers = make_loggers(self._options.loggers, self.config, self.folder)
        for logger in loggers:
            self._resources.callback(
                let_go, logger, lambda words: self._events.write("not logged", error=words)
            )
        self._driver = Driver(self._run, self._options, self._events, self._stop, report, loggers)
        return None

    def _discard_refused(self) -> None:
        """After its loggers are closed, and before the lock is."""
        if self._is_refused:
            execute.discard(self.folder)

    def waits_for_card(self) -> bool:
        """Whether launches are under way, or a task is to be closed: that reads results, so that its launches must be over."""
        closes = self._run is not None and (self._run.closes_next or self._run.is_closing)
        return self._is_pumped() or (closes and self._context.is_busy())

    def _is_pumped(self) -> bool:
        return self._job is not None and self._job.left > 0 and self._job.error is None

    def step(self) -> Outcome | None:
        run, driver = self._run, self._driver
        assert run is not None
        assert driver is not None
        if self.waits_for_card():
            return None
        self._end_launches()
        if not driver.is_due() and self._replay_some(run):
            return None
        with self._context.active():
            if run.finished:  # resumed from a checkpoint of its end
                return self._end(run, "done")
            try:
                closed = False
                if run.is_closing or self._next(run):
                    closed = run.close_task()
                    if not closed:
                        return None  # others have their turn while the card is at work on this part
                driver.after_step(closed)
            except NonFiniteError as error:
                return self._end(run, "diverged", str(error))
            if closed:
                self._cursor = self._row = None
                self._captured.clear()
                self._tries_left, self._warm_up = TRIES, WARM_UP_LATER
            return self._end(run, "done") if run.finished else None

    def _end(self, run: Run, status: str, note: str = "") -> Outcome:
        return self._close(ended(self.config, execute.end(run, self._events, status, note)))

    def _replay_some(self, run: Run) -> bool:
        """Have steps launched that need nothing beside the card: up to, and without, the last of a sweep."""
        captured = self._captured.get(run.batch_size)
        if captured is None or not run.sweep_is_open:
            return False
        steps = min(BURST, run.whole_batches_left - 1)
        if self._row is not None and steps >= self._row.steps:
            captured = self._row
        launches = steps // captured.steps
        if launches < 1:
            return False
        self._launch(captured.graph, launches, BUNDLE // captured.steps)
        run.skip(launches * captured.steps)
        return True

    def _launch(self, graph: torch.cuda.CUDAGraph, times: int, bundle: int = 1) -> None:
        """Have a graph launched that often, while other runs have their turn."""
        assert self.stream is not None
        self._job = Job(graph, self.stream, times, bundle)
        self._pump.add(self._job)

    def _next(self, run: Run) -> bool:
        """One step, replayed where one of its batch's size has been captured; True where the task has no more."""
        if not run.sweep_is_open:
            run.open_sweep()
            if self._cursor is None:
                self._cursor = Cursor(run)
            else:
                self._cursor.follow(run)
        assert self._cursor is not None
        size = run.next_size
        if self._ready(run, self._cursor, size):
            self._captured[size].graph.replay()
        else:
            run.observe(run.batch_at(self._cursor.next_places(size)))
        return run.advance()

    def _ready(self, run: Run, cursor: Cursor, size: int) -> bool:
        """Whether the step is captured, capturing it when the run has settled into one shape."""
        if size in self._captured or not self._capturable or not self._tries_left:
            return size in self._captured
        phase = run.learner.phase()
        before, steps = self._ordinary.get(size, (phase, 0))
        steps = steps if phase == before else 0
        self._ordinary[size] = phase, steps + 1
        if steps < self._warm_up:
            return False
        try:
            self._captured[size] = CapturedStep(run, self._context, cursor, size)
            if size == run.batch_size and run.steps_of_task >= ROW_PAYS_FROM:
                self._row = CapturedStep(run, self._context, cursor, size, ROW)
            return True
        except RuntimeError as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            full = isinstance(error, torch.OutOfMemoryError)
        # only here, where the error no longer holds on to the broken capture
        if full:
            if not self._captured:
                self._context.forget_pool()  # with what the capture had taken
            self._tries_left -= 1
            make_room()
        else:
            self._capturable = False
            torch.cuda.synchronize()
        if not (self._capturable and self._tries_left):
            self._tell_not_captured(reason)
        return False

    def _tell_not_captured(self, reason: str) -> None:
        self._events.write("not captured", reason=reason)
        self._watcher.fell_back(self.config, reason)

    def guarded(self, work: Callable[[], Outcome | None]) -> Outcome | None:
        """An error ends this run and is recorded; the others go on."""
        try:
            with execute.system_errors_told(self.folder):
                return work()
        except (Interrupted, KeyboardInterrupt):
            raise
        except LockedError as error:
            return self._close(Outcome(self.config, "locked", str(error), error))
        except Exception as error:
            if hasattr(self, "_events"):
                execute.note_failure(self._events, error)
            _release(error)
            begun = self._run is not None and self._run.position.step > 0
            self._is_refused = isinstance(error, ConfigError | DataError) and self._fresh and not begun
            kind = "" if isinstance(error, CorestreamError) else f"{type(error).__name__}: "
            refused = isinstance(error, ConfigError)
            return self._close(Outcome(self.config, "failed", f"{kind}{error}", error, refused))

    def interrupt(self) -> None:
        """Save what there is and let go. A run that cannot be saved goes on from the checkpoint before, and holds up no other."""
        try:
            if self._driver is not None and self._run is not None and not self._run.finished:
                self._save(self._run, self._driver)
                self._events.write("interrupted", signal=self._stop.signum)
        except Exception as error:
            execute.note_failure(self._events, error)
        finally:
            self._resources.close()

    def _save(self, run: Run, driver: Driver) -> None:
        self._await_launches()
        with self._context.active():
            if run.is_closing:
                while not run.close_task():
                    self._await_launches()
                driver.note_task(time.monotonic())
            driver.save()

    def _await_launches(self) -> None:
        while self._is_pumped():
            time.sleep(PAUSE)
        self._end_launches()

    def _end_launches(self) -> None:
        """Forget the job that is over, and its graph. Its error is raised: the run has already counted steps that were never made."""
        job, self._job = self._job, None
        if job is not None and job.error is not None:
            raise job.error

    def _close(self, outcome: Outcome) -> Outcome:
        """Let go of what is on the card: the lane itself may outlive its run."""
        self._run = self._driver = self._job = self._cursor = self._row = None
        self._captured.clear()
        self._context.forget_pool()
        self._resources.close()
        return outcome


def _release(error: BaseException) -> None:
    """What is kept of an error tells its lines, and holds on to nothing that they worked with."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
