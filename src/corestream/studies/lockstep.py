"""Several runs at once in one process: step by step in turn, on CUDA each as a graph on a stream of its own.

A step of a small network is hundreds of tiny kernels; launching them costs more than they do. After a few ordinary steps of a task
the next one is captured, the choice of its batch included, and from then on a step is one launch. The runs' kernels fill the card
side by side. The code that learns is the ordinary one; a run that cannot be captured goes on by ordinary steps and says so.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from corestream.errors import CorestreamError, NonFiniteError
from corestream.studies import execute
from corestream.studies.config import RunConfig
from corestream.studies.drive import Driver, Options, Progress
from corestream.studies.events import EventLog
from corestream.studies.locks import LockedError, locked
from corestream.studies.pool import Outcome, Watcher
from corestream.studies.run import Run
from corestream.studies.stopping import Interrupted, StopRequest

WARM_UP = 3  # ordinary steps of a task before one is captured: by then all state that lasts has been made
BURST = 20  # steps launched for one run before the next one's turn
NEVER = (
    2**62
)  # steps between checkpoints beside those by time and at a task's end: each one waits for the card


def make_runs_together(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    lanes: int,
    options: Options | None = None,
    watcher: Watcher | None = None,
) -> list[Outcome]:
    """Make the runs, `lanes` of them at a time. SIGINT and SIGTERM raise Interrupted after checkpoints."""
    options = replace(options or Options(), checkpoint_steps=NEVER)
    watcher = watcher or Watcher()
    waiting, outcomes, working = deque(configs), [], list[Lane]()

    def settle(lane: Lane, outcome: Outcome) -> None:
        working.remove(lane)
        outcomes.append(outcome)
        watcher.ended(outcome, lane.accuracy)

    with StopRequest() as stop:
        try:
            while waiting or working:
                while waiting and len(working) < lanes:
                    lane = Lane(waiting.popleft(), out, options, stop, watcher)
                    working.append(lane)
                    if (outcome := lane.guarded(lane.begin)) is not None:
                        settle(lane, outcome)
                for lane in list(working):
                    if (outcome := lane.guarded(lane.step)) is not None:
                        settle(lane, outcome)
        except Interrupted:
            for lane in working:
                lane.interrupt()
            raise
    return outcomes


class Lane:
    """One of the runs, with its stream of kernels and its own share of torch's randomness."""

    accuracy: float | None = None

    def __init__(
        self, config: RunConfig, out: Path, options: Options, stop: StopRequest, watcher: Watcher
    ) -> None:
        self.config, self.folder = config, out / config.digest()
        self._options, self._stop, self._watcher = options, stop, watcher
        self._resources = ExitStack()
        self._place = Place(config.device, config.seed)
        self._run: Run | None = None
        self._driver: Driver | None = None
        self._captured: CapturedStep | None = None
        self._eager_steps = 0
        self._phase: Hashable = None
        self._capturable = config.device != "cpu" and not config.record

    def begin(self) -> Outcome | None:
        self._watcher.began(self.config)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._resources.enter_context(locked(self.folder))
        if (found := execute.read_accuracy(self.folder, self.config)) is not None:
            return self._ended(found)
        self._events = EventLog(self.folder)
        with self._place.active():
            self._run = execute.begin(self.config, self.folder, self._options, self._events)
        self._place.settle()

        def report(progress: Progress) -> None:
            self._watcher.progressed(self.config, progress)

        self._driver = Driver(self._run, self._options, self._events, self._stop, report)
        return None

    def step(self) -> Outcome | None:
        run, driver = self._run, self._driver
        assert run is not None
        assert driver is not None
        if self._captured is not None and run.sweep_is_open:
            self._replay_some(run, self._captured)
        with self._place.active():
            try:
                closed = self._next(run)
                driver.after_step(closed)
            except NonFiniteError as error:
                return self._ended(execute.end(run, self._events, execute.DIVERGED, str(error)))
            if closed:
                self._captured, self._eager_steps, self._phase = None, 0, None
            if run.finished:
                return self._ended(execute.end(run, self._events, execute.DONE, ""))
        return None

    def _replay_some(self, run: Run, captured: "CapturedStep") -> None:
        """Steps that need nothing beside the card: up to, and without, the last of a sweep."""
        count = min(BURST, run.whole_batches_left - 1)
        if count > 0:
            with torch.cuda.stream(self._place.stream):
                for _ in range(count):
                    captured.replay()
            run.skip(count)

    def _next(self, run: Run) -> bool:
        """One step: replayed where it has been captured, and where the batch is a whole one."""
        if not run.sweep_is_open:
            run.open_sweep()
            if self._captured is not None:
                self._captured.follow(run)
        if run.whole_batches_left < 1 or not self._ready(run):
            run.observe(run.batch_at(run.next_places()))
            self._eager_steps += 1
            if self._captured is not None:
                self._captured.skip()
        else:
            assert self._captured is not None
            self._captured.replay()
        return run.advance()

    def _ready(self, run: Run) -> bool:
        """Whether the step is captured, capturing it when the run has settled into one shape."""
        if self._captured is not None or not self._capturable:
            return self._captured is not None
        phase = run.learner.phase()
        settled, self._phase = phase == self._phase, phase
        if self._eager_steps < WARM_UP or not settled:
            return False
        try:
            self._captured = CapturedStep(run, self._place)
        except RuntimeError as error:
            self._capturable = False
            torch.cuda.synchronize()
            self._events.write("not captured", reason=f"{type(error).__name__}: {error}".splitlines()[0])
            return False
        return True

    def guarded(self, work: Callable[[], Outcome | None]) -> Outcome | None:
        """An error ends this run and is recorded; the others go on."""
        try:
            return work()
        except (Interrupted, KeyboardInterrupt):
            raise
        except LockedError as error:
            return self._close(Outcome(self.config, "locked", str(error)))
        except Exception as error:
            if hasattr(self, "_events"):
                execute.note_failure(self._events, error)
            kind = "" if isinstance(error, CorestreamError) else f"{type(error).__name__}: "
            return self._close(Outcome(self.config, "failed", f"{kind}{error}"))

    def interrupt(self) -> None:
        """Save what there is and let go."""
        if self._driver is not None and self._run is not None and not self._run.finished:
            with self._place.active():
                self._driver.save()
            self._events.write("interrupted", signal=self._stop.signum)
        self._resources.close()

    def _ended(self, result: dict[str, object]) -> Outcome:
        accuracy = result["average_accuracy"]
        self.accuracy = accuracy if isinstance(accuracy, float) else None
        status = "done" if result["status"] == execute.DONE else "diverged"
        return self._close(Outcome(self.config, status, str(result["note"])))  # type: ignore[arg-type]

    def _close(self, outcome: Outcome) -> Outcome:
        self._captured = None
        self._resources.close()
        return outcome


class Place:
    """Where a lane works: its CUDA stream, and a state of torch's own generator that no other lane draws from."""

    def __init__(self, device: str, seed: int) -> None:
        if device == "cuda":
            torch.cuda.init()  # torch's own generators are there only afterwards
        self.stream = torch.cuda.Stream() if device == "cuda" else None
        self._cpu_state = torch.Generator().manual_seed(seed).get_state()
        if self.stream is not None:
            self.generator = torch.Generator("cuda").manual_seed(seed)

    @contextmanager
    def active(self) -> Iterator[None]:
        outside = torch.get_rng_state() if self.stream is None else None
        if self.stream is None:
            torch.set_rng_state(self._cpu_state)
            try:
                yield
            finally:
                self._cpu_state = torch.get_rng_state()
                assert outside is not None
                torch.set_rng_state(outside)
            return
        default = torch.cuda.default_generators[torch.cuda.current_device()]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self.generator.graphsafe_get_state())
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            default.graphsafe_set_state(before)

    def settle(self) -> None:
        """What was made for all lanes, such as a dataset's images, must be there before others look at it."""
        if self.stream is not None:
            torch.cuda.synchronize()


class CapturedStep:
    """A run's step as a CUDA graph: it takes its batch from the sweep's order by a counter on the card."""

    def __init__(self, run: Run, place: Place) -> None:
        size = run.batch_size
        self._order: Tensor = run.order.clone()
        self._at = torch.tensor(run.position.batch * size, device=self._order.device)
        self._size = size
        self._span = torch.arange(size, device=self._order.device)  # held: the graph reads it at every replay
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(run.learner.generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph, stream=place.stream, capture_error_mode="thread_local"):
            places = self._order.index_select(0, self._at + self._span)
            self._at += size
            run.observe(run.batch_at(places))

    def replay(self) -> None:
        self._graph.replay()

    def skip(self) -> None:
        """An ordinary step took this batch."""
        self._at += self._size

    def follow(self, run: Run) -> None:
        """A new sweep: its order, from its start."""
        self._order.copy_(run.order)
        self._at.fill_(run.position.batch * self._size)
