"""Runs made side by side in one process are the runs that are made alone."""

import json
import os
import signal
from pathlib import Path

import pytest

from corestream.errors import NonFiniteError
from corestream.studies.config import RunConfig, make_config
from corestream.studies.events import read_events
from corestream.studies.execute import execute, read_memory
from corestream.studies.lockstep import make_runs_together
from corestream.studies.pool import Outcome, Watcher
from corestream.studies.run import Run
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
        def ended(self, outcome: Outcome, accuracy: float | None) -> None:
            told.append(outcome)

    outcomes = make_runs_together([bad, good], tmp_path, lanes=2, watcher=Listener())
    found = {outcome.config.digest(): outcome.status for outcome in outcomes}
    assert found == {bad.digest(): "failed", good.digest(): "done"}
    assert told == outcomes
    assert "rained" in (tmp_path / bad.digest() / "events.jsonl").read_text()


def test_a_run_that_broke_off_after_its_last_checkpoint_is_ended(tmp_path: Path) -> None:
    one = config("uniform", 0)
    make_runs_together([one], tmp_path, lanes=1)
    whole = accuracy(tmp_path, one)
    (tmp_path / one.digest() / "accuracy.json").unlink()
    assert make_runs_together([one], tmp_path, lanes=1)[0].status == "done"
    assert accuracy(tmp_path, one) == whole


@pytest.mark.parametrize(
    "method", ["uniform", "mc-sgd"]
)  # one is tested in the second part, one in the first
def test_stopped_while_tasks_are_closed_runs_go_on_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    configs = [config(method, seed) for seed in (0, 1)]  # they close their first tasks in the same round
    ordinary, stopped = Run.close_task, list[Path]()

    def closing(self: Run) -> bool:
        closed = ordinary(self)
        if not stopped:
            stopped.append(self.folder)
            os.kill(os.getpid(), signal.SIGINT)
        return closed

    monkeypatch.setattr(Run, "close_task", closing)
    out = tmp_path / "together"
    with pytest.raises(Interrupted):
        make_runs_together(configs, out, lanes=2)
    for one in configs:
        told = [event["event"] for event in read_events(out / one.digest())]
        assert told[:2] == ["started", "task"]
        assert "checkpoint" in told
    assert {outcome.status for outcome in make_runs_together(configs, out, lanes=2)} == {"done"}
    for one in configs:
        events = read_events(out / one.digest())
        assert [event["task"] for event in events if event["event"] == "resumed"] == [1]
        assert [event["task"] for event in events if event["event"] == "task"] == [0, 1]
        execute(one, tmp_path / "alone")
        assert accuracy(out, one) == accuracy(tmp_path / "alone", one)


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
