"""Runs made side by side in one process are the runs that are made alone."""

import errno
import gc
import json
import os
import signal
import weakref
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from corestream.errors import ConfigError, NonFiniteError, RunError
from corestream.learners.uniform import Uniform
from corestream.studies import captured, lockstep, loggers
from corestream.studies.config import RunConfig, make_config
from corestream.studies.drive import Options
from corestream.studies.events import read_events
from corestream.studies.execute import execute, read_memory
from corestream.studies.lockstep import make_runs_together
from corestream.studies.pool import Outcome, Watcher
from corestream.studies.run import Run, make_run
from corestream.studies.stopping import Interrupted


def config(method: str, seed: int, **given: object) -> RunConfig:
    return make_config("rotated-digits", method, seed=seed, tasks=2, overrides={"sweeps": 2}, **given)


def accuracy(out: Path, made: RunConfig) -> dict[str, object]:
    return json.loads((out / made.digest() / "accuracy.json").read_text())


@pytest.mark.parametrize("method", ["ocs", "uniform", "finetune", "er-reservoir", "gss"])
def test_runs_in_lockstep_are_bit_equal_to_runs_alone(tmp_path: Path, method: str) -> None:
    configs = [config(method, seed) for seed in (0, 1)] + [config(method, 2, imbalanced=True)]
    outcomes = make_runs_together(configs, tmp_path / "together", lanes=2)
    assert [outcome.status for outcome in outcomes] == ["done"] * 3
    for one in configs:
        execute(one, tmp_path / "alone")
        assert accuracy(tmp_path / "together", one) == accuracy(tmp_path / "alone", one)
        together, alone = (read_memory(tmp_path / where / one.digest()) for where in ("together", "alone"))
        assert together.keys() == alone.keys()
        assert all(together[name].equal(alone[name]) for name in alone)


def test_runs_in_lockstep_are_logged_and_saved_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[Path, list[object]] = {}

    class Noting:
        def __init__(self, config: RunConfig, folder: Path) -> None:
            self.noted = told.setdefault(folder, [])

        def log(self, step: int, values: object) -> None:
            self.noted.append(step)

        def close(self) -> None:
            self.noted.append("closed")

    monkeypatch.setitem(loggers.LOGGERS, "noting", Noting)
    configs = [config("finetune", seed) for seed in (0, 1)]
    make_runs_together(configs, tmp_path, lanes=2, options=Options(checkpoint_steps=20, loggers=("noting",)))
    for one in configs:
        folder = tmp_path / one.digest()
        events = read_events(folder)
        assert told[folder] == [event["step"] for event in events if event["event"] == "task"] + ["closed"]
        saved = [event["step"] for event in events if event["event"] == "checkpoint"]
        assert all(later - earlier <= 20 for earlier, later in pairwise([0, *saved]))


def test_a_logger_that_cannot_be_closed_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, config: RunConfig, folder: Path) -> None:
            self.fails = config.seed == 0

        def log(self, step: int, values: object) -> None:
            if self.fails:
                raise ConnectionError("nobody there")

        def close(self) -> None:
            raise ConnectionError("still nobody there")

    monkeypatch.setitem(loggers.LOGGERS, "broken", Broken)
    configs = [config("finetune", seed) for seed in (0, 1)]
    outcomes = make_runs_together(configs, tmp_path, lanes=1, options=Options(loggers=("broken",)))
    assert [outcome.status for outcome in outcomes] == ["failed", "done"]
    assert "still nobody there" in (tmp_path / configs[1].digest() / "events.jsonl").read_text()


def test_one_failing_run_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from corestream.learners.finetune import Finetune

    ordinary = Finetune.end_task

    def failing(self: Finetune, data: object = None) -> None:
        if self.k == 4:
            raise RuntimeError("the disk of the cloud has rained")
        ordinary(self, data)

    monkeypatch.setattr(Finetune, "end_task", failing)
    bad = make_config("rotated-digits", "finetune", tasks=1, overrides={"sweeps": 1, "k": 4})
    good = make_config("rotated-digits", "finetune", tasks=1, overrides={"sweeps": 1})
    told: list[Outcome] = []

    class Listener(Watcher):
        def ended(self, outcome: Outcome) -> None:
            told.append(outcome)

    outcomes = make_runs_together([bad, good], tmp_path, lanes=2, watcher=Listener())
    found = {outcome.config.digest(): outcome.status for outcome in outcomes}
    assert found == {bad.digest(): "failed", good.digest(): "done"}
    assert told == outcomes
    assert "rained" in (tmp_path / bad.digest() / "events.jsonl").read_text()


class OnTheCard(lockstep.Lane):
    """As on a card, up to the capture itself."""

    def begin(self) -> Outcome | None:
        self._capturable = True
        return super().begin()


class PretendedStep:
    """What a captured step is to a lane: it is made without a step, and each launch is as many as it holds."""

    def __init__(self, run: Run, place: object, cursor: captured.Cursor, size: int, steps: int = 1) -> None:
        self.steps, self.graph = steps, self
        self._work = lambda: run.observe(run.batch_at(cursor.next_places(size)))

    def replay(self) -> None:
        for _ in range(self.steps):
            self._work()


@pytest.fixture
def bursts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs whose steps are pretended to be captured, four in a row and at most nine at once; how many were launched each time."""
    launched = []

    def launch(lane: OnTheCard, graph: PretendedStep, times: int, bundle: int = 1) -> None:
        launched.append(times * graph.steps)
        for _ in range(times):
            graph.replay()

    for name, value in (("Lane", OnTheCard), ("CapturedStep", PretendedStep), ("ROW", 4), ("BURST", 9)):
        monkeypatch.setattr(lockstep, name, value)
    monkeypatch.setattr(lockstep, "ROW_PAYS_FROM", 1)
    monkeypatch.setattr(OnTheCard, "_launch", launch)
    return launched


@pytest.mark.parametrize("method", ["ocs", "uniform", "gss"])
def test_launched_steps_are_those_of_a_run_alone(tmp_path: Path, bursts: list[int], method: str) -> None:
    one = config(method, 0)
    every = Options(checkpoint_steps=7)
    assert make_runs_together([one], tmp_path / "together", lanes=1, options=every)[0].status == "done"
    execute(one, tmp_path / "alone")
    assert accuracy(tmp_path / "together", one) == accuracy(tmp_path / "alone", one)
    assert max(bursts) == 8  # two rows
    events = read_events(tmp_path / "together" / one.digest())
    saved = [event["step"] for event in events if event["event"] == "checkpoint"]
    assert all(later - earlier <= 7 + 9 for earlier, later in pairwise([0, *saved]))


def test_a_signal_while_steps_are_launched_is_heeded_before_the_sweep_ends(
    tmp_path: Path, bursts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, told = config("ocs", 0), []
    launch = OnTheCard._launch

    def interrupt(lane: OnTheCard, *given: object) -> None:
        launch(lane, *given)
        if not told and lane._run is not None:
            told.append(lane._run.position.step)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(OnTheCard, "_launch", interrupt)
    with pytest.raises(Interrupted, match="the same command continues from here"):
        make_runs_together([one], tmp_path / "together", lanes=1)
    events = read_events(tmp_path / "together" / one.digest())
    assert {event["step"] for event in events if event["event"] == "checkpoint"} == {told[0] + bursts[0] + 1}
    assert make_runs_together([one], tmp_path / "together", lanes=1)[0].status == "done"
    execute(one, tmp_path / "alone")
    assert accuracy(tmp_path / "together", one) == accuracy(tmp_path / "alone", one)


def test_what_cannot_be_captured_is_told_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand a trace")

    monkeypatch.setattr(lockstep, "Lane", OnTheCard)
    monkeypatch.setattr(lockstep, "CapturedStep", refused)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    told: list[tuple[RunConfig, str]] = []

    class Listener(Watcher):
        def fell_back(self, config: RunConfig, reason: str) -> None:
            told.append((config, reason))

    one = config("ocs", 0)
    assert make_runs_together([one], tmp_path, lanes=1, watcher=Listener())[0].status == "done"
    assert told == [(one, "RuntimeError: operation not permitted when stream is capturing")]
    assert "not captured" in (tmp_path / one.digest() / "events.jsonl").read_text()


def test_a_run_that_broke_off_after_its_last_checkpoint_is_ended(tmp_path: Path) -> None:
    one = config("uniform", 0)
    make_runs_together([one], tmp_path, lanes=1)
    whole = accuracy(tmp_path, one)
    (tmp_path / one.digest() / "accuracy.json").unlink()
    assert make_runs_together([one], tmp_path, lanes=1)[0].status == "done"
    assert accuracy(tmp_path, one) == whole


NEEDS_CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_CARD)])
@pytest.mark.parametrize("part", [1, 2])  # after the path that MC-SGD searches, after the tests
def test_stopped_while_a_task_is_closed_runs_go_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, device: str
) -> None:
    monkeypatch.setattr(captured, "can_fuse", lambda: False)
    closing, stepping = (
        make_config(
            "rotated-digits",
            "mc-sgd",
            tasks=3,
            overrides={"sweeps": sweeps, "path_steps": 20},
            device=device,
        )
        for sweeps in (1, 5)
    )
    ordinary, parts = Run.close_task, list[bool]()

    def stopping(self: Run) -> bool:
        task, closed = self.position.task, ordinary(self)
        if self.config == closing and task == 1:
            parts.append(closed)
            if len(parts) == part:
                os.kill(os.getpid(), signal.SIGINT)
        return closed

    monkeypatch.setattr(Run, "close_task", stopping)
    out = tmp_path / "together"
    with pytest.raises(Interrupted):
        make_runs_together([closing, stepping], out, lanes=2)
    assert parts == [False, False, True]
    told = [event["event"] for event in read_events(out / closing.digest())]
    assert [name for name in told if name != "checkpoint"] == ["started", "task", "task", "interrupted"]
    assert {outcome.status for outcome in make_runs_together([closing, stepping], out, lanes=2)} == {"done"}
    events = read_events(out / closing.digest())
    assert [event["task"] for event in events if event["event"] == "resumed"] == [2]
    assert [event["task"] for event in events if event["event"] == "task"] == [0, 1, 2]
    for one in (closing, stepping):
        execute(one, tmp_path / "alone")
        assert accuracy(out, one) == accuracy(tmp_path / "alone", one)


def test_a_task_whose_closing_failed_can_be_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(config("uniform", 0), tmp_path)
    ordinary, failures = Uniform.end_task, [RuntimeError("the card is full")]

    def failing(self: Uniform, data: object = None) -> None:
        if failures:
            raise failures.pop()
        ordinary(self, data)

    monkeypatch.setattr(Uniform, "end_task", failing)
    while not run.closes_next:
        run.step()
    with pytest.raises(RuntimeError, match="the card is full"):
        run.step()
    assert not run.is_closing
    assert [run.close_task() for _ in range(3)] == [False, False, True]
    assert run.position.task == run.learner.task == 1


def test_a_run_that_cannot_be_saved_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [config("uniform", seed) for seed in (0, 1, 2)]
    ordinary, steps = Run.advance, [0]

    def advance(self: Run) -> bool:
        steps[0] += 1
        if steps[0] == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return ordinary(self)

    def check(self: Run) -> None:
        if self.config.seed == 1:
            raise NonFiniteError("it has diverged since")

    monkeypatch.setattr(Run, "advance", advance)
    monkeypatch.setattr(Run, "check", check)
    with pytest.raises(Interrupted):
        make_runs_together(configs, tmp_path, lanes=3)
    last = {one.seed: read_events(tmp_path / one.digest())[-1]["event"] for one in configs}
    assert last[1] == "failed"
    assert last[2] == "interrupted"
    monkeypatch.undo()
    assert {outcome.status for outcome in make_runs_together(configs, tmp_path, lanes=3)} == {"done"}


def test_what_stopped_a_run_is_at_hand_as_it_was_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(Run, "save", lambda run: (_ for _ in ()).throw(full))
    (outcome,) = make_runs_together([config("uniform", 0)], tmp_path, lanes=1)
    assert isinstance(outcome.cause, RunError)
    assert outcome.cause.__cause__ is full
    assert outcome.error == str(outcome.cause)
    assert outcome.error.endswith("; make room and start the same command again")


def test_a_configuration_that_is_refused_at_the_first_step_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: Run, batch: object) -> None:
        raise ConfigError("k is too large")

    class Late:
        """A logger that writes when it is closed."""

        def __init__(self, config: RunConfig, folder: Path) -> None:
            self.path = folder / "log"

        def close(self) -> None:
            self.path.write_text("closed")

    monkeypatch.setattr(Run, "observe", refuse)
    monkeypatch.setitem(loggers.LOGGERS, "late", Late)
    (outcome,) = make_runs_together(
        [config("uniform", 0)], tmp_path, lanes=1, options=Options(loggers=("late",))
    )
    assert (outcome.status, str(outcome.cause)) == ("failed", "k is too large")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_is_let_go_while_its_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[Run]] = []

    def fail(run: Run, batch: object) -> None:
        held.append(weakref.ref(run))
        raise OSError("gone") from RuntimeError("before it")

    monkeypatch.setattr(Run, "observe", fail)
    (outcome,) = make_runs_together([config("uniform", 0)], tmp_path, lanes=1)
    gc.collect()
    assert outcome.cause is not None
    assert held[0]() is None
