"""On a card: captured steps are the ordinary ones, fused ones as good, and what cannot be captured goes on without."""

import gc
import json
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from corestream import learners
from corestream.errors import DataError
from corestream.learners.ocs import OCS
from corestream.memory import ReplayMemory, Samples
from corestream.repeating import repeat
from corestream.selection import score
from corestream.streams.samples import Scale
from corestream.studies import captured, lockstep
from corestream.studies.config import RunConfig, make_config
from corestream.studies.drive import Options
from corestream.studies.events import read_events
from corestream.studies.execute import execute
from corestream.studies.lockstep import make_runs_together
from corestream.studies.pool import Watcher
from corestream.studies.run import Run
from corestream.studies.stopping import Interrupted
from corestream.studies.study import make_alone

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def config(method: str, seed: int, **given: Any) -> RunConfig:
    sweeps = {"sweeps": 4}
    return make_config("rotated-digits", method, seed=seed, tasks=3, overrides=sweeps, device="cuda", **given)


def accuracy(out: Path, made: RunConfig) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / made.digest() / "accuracy.json").read_text())
    return found


def was_captured(out: Path, made: RunConfig) -> bool:
    return "not captured" not in (out / made.digest() / "events.jsonl").read_text()


@pytest.mark.parametrize("long", [1, lockstep.ROW_PAYS_FROM], ids=["in rows", "one by one"])
@pytest.mark.parametrize(
    "method",
    ["ocs", "uniform", "finetune", "er-reservoir", "a-gem", "gss", "ewc", "mc-sgd", "mc-sgd+ocs"],
)
def test_captured_steps_are_bit_equal_to_ordinary_ones(
    tmp_path: Path, method: str, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockstep, "ROW_PAYS_FROM", long)
    monkeypatch.setattr(captured, "can_fuse", lambda: False)
    configs = [config(method, 0), config(method, 1, imbalanced=True)]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*uncaptured")
        outcomes = make_runs_together(configs, tmp_path / "together", lanes=2)
    assert [outcome.status for outcome in outcomes] == ["done", "done"]
    for one in configs:
        assert was_captured(tmp_path / "together", one)
        execute(one, tmp_path / "alone")
        assert accuracy(tmp_path / "together", one) == accuracy(tmp_path / "alone", one)


def test_fused_steps_learn_as_well(tmp_path: Path) -> None:
    one = config("ocs", 0)
    assert make_runs_together([one], tmp_path / "together", lanes=1)[0].status == "done"
    execute(one, tmp_path / "alone")
    fused, plain = (accuracy(tmp_path / where, one)["average_accuracy"] for where in ("together", "alone"))
    assert was_captured(tmp_path / "together", one)
    assert fused == pytest.approx(plain, abs=0.03)


@pytest.mark.parametrize("captures", [True, False])
def test_repeated_work_draws_and_learns_as_in_a_loop(captures: bool) -> None:
    found = []
    for place in (None, captured.LaneContext(torch.cuda.Stream(), seed=0)):
        generator = torch.Generator("cuda").manual_seed(1)
        value = torch.zeros(3, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([value], lr=0.1, momentum=0.8)

        def work(
            value: Any = value, optimizer: Any = optimizer, generator: Any = generator, place: Any = place
        ) -> None:
            drawn = torch.rand(3, generator=generator, device="cuda")
            optimizer.zero_grad(set_to_none=True)
            (value - drawn).square().sum().backward()
            optimizer.step()
            if not captures and place is not None:
                float(value[0])  # waits for the card, which a capture forbids

        torch.cuda.synchronize()
        if place is None:
            repeat(work, 7, generator)
        elif captures:
            with place.active(), warnings.catch_warnings():
                warnings.simplefilter("error")
                repeat(work, 7, generator)
        else:
            with place.active(), pytest.warns(UserWarning, match="uncaptured"):
                repeat(work, 7, generator)
        torch.cuda.synchronize()
        found.append((value.detach().clone(), torch.rand(2, generator=generator, device="cuda")))
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_older_tasks_that_normalise_by_their_batch_are_scored_by_one_captured_pass() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 3),
    ).cuda()
    memory = ReplayMemory(60)
    drawn = [(torch.rand(n, 1, 8, 8).cuda(), torch.randint(3, (n,)).cuda()) for n in (8, 8, 5, 8, 8, 5, 8)]
    memory.replace(Samples.join([Samples.of(x, y, task) for task, (x, y) in enumerate(drawn)]))
    learner = OCS(model, torch.optim.SGD(model.parameters(), lr=0.1), memory, score_mode="eval")
    plain = learner._worth_of_kept()
    for (x, y), rows in zip(drawn, memory.places_by_task(), strict=True):
        torch.testing.assert_close(plain[rows].float(), score(model, None, (x, y), mode="eval").total.cpu())
    with captured.LaneContext(torch.cuda.Stream(), seed=0).active(), warnings.catch_warnings():
        warnings.simplefilter("error")
        again = learner._worth_of_kept()
    torch.testing.assert_close(
        again, plain, rtol=1e-3, atol=1e-4
    )  # fused, its sums may be taken in another order


def test_a_long_run_keeps_its_stream_while_many_short_ones_pass(tmp_path: Path) -> None:
    long = make_config("rotated-digits", "ocs", tasks=3, overrides={"sweeps": 40}, device="cuda")
    short = [
        make_config("rotated-digits", "finetune", seed=seed, tasks=1, overrides={"sweeps": 1}, device="cuda")
        for seed in range(2 * lockstep.STREAMS)
    ]
    outcomes = make_runs_together([long, *short], tmp_path, lanes=3)
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert len(outcomes) == 1 + len(short)


def test_a_step_that_cannot_be_captured_goes_on_by_ordinary_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = OCS._learn

    def looking(self: OCS, *args: Any) -> Any:
        step = ordinary(self, *args)
        float(self._steps)  # waits for the card, which a capture forbids
        return step

    one = config("ocs", 0)
    monkeypatch.setattr(captured, "can_fuse", lambda: False)
    execute(one, tmp_path / "alone")
    monkeypatch.setattr(OCS, "_learn", looking)
    assert make_runs_together([one], tmp_path / "together", lanes=1)[0].status == "done"
    assert not was_captured(tmp_path / "together", one)
    assert accuracy(tmp_path / "together", one) == accuracy(tmp_path / "alone", one)
    assert gc.isenabled()


@pytest.mark.parametrize("times", [1, 2])
def test_a_card_that_was_full_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    ordinary, left = OCS._learn, [times]

    def full(self: OCS, *args: Any) -> Any:
        if torch.cuda.is_current_stream_capturing() and left[0]:
            left[0] -= 1
            torch.rand(10, generator=self.generator, device="cuda")
            raise torch.OutOfMemoryError("the card is full")
        return ordinary(self, *args)

    one = config("ocs", 0)
    monkeypatch.setattr(captured, "can_fuse", lambda: False)
    execute(one, tmp_path / "alone")
    monkeypatch.setattr(OCS, "_learn", full)
    assert make_runs_together([one], tmp_path / "together", lanes=1)[0].status == "done"
    assert was_captured(tmp_path / "together", one) == (times == 1)  # twice: not in that task
    assert accuracy(tmp_path / "together", one) == accuracy(tmp_path / "alone", one)


def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "can_fuse", lambda: False)
    one = config("ocs", 0)
    make_runs_together([one], tmp_path / "whole", lanes=1)
    closed: list[int] = []
    ordinary = OCS.end_task

    def failing(self: OCS, data: Any = None) -> None:
        ordinary(self, data)
        closed.append(self.task)
        if closed == [1, 2]:
            raise RuntimeError("the power went")

    monkeypatch.setattr(OCS, "end_task", failing)
    assert make_runs_together([one], tmp_path / "broken", lanes=1)[0].status == "failed"
    assert make_runs_together([one], tmp_path / "broken", lanes=1)[0].status == "done"
    assert accuracy(tmp_path / "broken", one) == accuracy(tmp_path / "whole", one)


def test_deterministic_runs_repeat_bit_for_bit(tmp_path: Path) -> None:
    one = config("ocs", 0, deterministic=True)
    try:
        found = [make_runs_together([one], tmp_path / name, lanes=1)[0].status for name in ("a", "b")]
    finally:
        torch.use_deterministic_algorithms(False)
    assert found == ["done", "done"]
    assert accuracy(tmp_path / "a", one) == accuracy(tmp_path / "b", one)


def test_scaling_by_channels_can_be_captured() -> None:
    scale = Scale(255.0, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    images = torch.randint(0, 256, (4, 3, 2, 2), dtype=torch.uint8, device="cuda")
    expected, graph = scale(images), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = scale(images)
    graph.replay()
    assert torch.equal(found, expected)


def test_what_is_recorded_at_each_step_keeps_a_run_from_being_captured(tmp_path: Path) -> None:
    one = config("ocs", 0, record=("picks",))
    assert make_runs_together([one], tmp_path, lanes=1)[0].status == "done"
    assert not was_captured(tmp_path, one)


def test_one_run_alone_is_captured_and_raises_what_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, usual = [], lockstep.CapturedStep
    monkeypatch.setattr(lockstep, "CapturedStep", lambda *args: made.append(args) or usual(*args))
    one = config("ocs", 0)
    found = make_alone(one, tmp_path, Options(), Watcher())
    assert found == accuracy(tmp_path, one)
    assert len(made) >= 3  # one a task
    assert make_alone(one, tmp_path, Options(), Watcher()) == found
    missing = make_config("rotated-mnist", "ocs", device="cuda")
    with pytest.raises(DataError, match="mnist is missing"):
        make_alone(missing, tmp_path, Options(data_dir=tmp_path, offline=True), Watcher())


def test_a_method_of_ones_own_is_captured_where_it_says_that_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(OCS):
        def _learn(self, *args: Any) -> Any:
            self.count = getattr(self, "count", 0) + 1
            return super()._learn(*args)

    monkeypatch.setitem(learners.METHODS, "ocs", replace(learners.METHODS["ocs"], learner=Counting))
    one = config("ocs", 0)
    assert make_runs_together([one], tmp_path / "silent", lanes=1)[0].status == "done"
    assert not was_captured(tmp_path / "silent", one)
    monkeypatch.setattr(Counting, "capturable", True)
    assert make_runs_together([one], tmp_path / "said", lanes=1)[0].status == "done"
    assert was_captured(tmp_path / "said", one)


def test_a_signal_in_a_long_sweep_is_heeded_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = config("ocs", 0)
    usual, told = lockstep.Lane._replay_some, []

    def replay(lane: lockstep.Lane, run: Run) -> bool:
        launched = usual(lane, run)
        if launched and not told:
            told.append(run.position.step)
            signal.raise_signal(signal.SIGINT)
        return launched

    monkeypatch.setattr(lockstep, "BURST", 8)
    monkeypatch.setattr(lockstep.Lane, "_replay_some", replay)
    with pytest.raises(Interrupted, match=r"step \d+; the same command continues from here"):
        make_runs_together([one], tmp_path, lanes=1)
    # the last one: where a slow machine compiles for a minute, there is one by time before it
    *_, saved = (e["step"] for e in read_events(tmp_path / one.digest()) if e["event"] == "checkpoint")
    assert saved <= told[0] + 2
    assert make_runs_together([one], tmp_path, lanes=1)[0].status == "done"
