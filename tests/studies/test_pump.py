"""Launches from a thread of their own: all of them, in turn, and an error is told."""

import gc
import time
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from corestream.studies import captured
from corestream.studies.config import make_config
from corestream.studies.drive import Options
from corestream.studies.lockstep import Lane
from corestream.studies.pool import Watcher
from corestream.studies.pump import Job, Pump
from corestream.studies.stopping import StopRequest


class Graph:
    """Writes its name down at each replay; fails at one of them where told."""

    def __init__(self, name: str, log: list[str], fails_at: int | None = None) -> None:
        self.name, self.log, self.fails_at, self.count = name, log, fails_at, 0

    def replay(self) -> None:
        if self.count == self.fails_at:
            raise RuntimeError("an illegal memory access")
        self.count += 1
        self.log.append(self.name)


class Event:
    """Over as soon as it is recorded, or never."""

    over = True

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return Event.over


@pytest.fixture(autouse=True)
def _no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "over", True)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def done(*jobs: Job) -> bool:
    return all(job.left == 0 or job.error is not None for job in jobs)


def wait_for(*jobs: Job) -> None:
    end = time.monotonic() + 10
    while not done(*jobs) and time.monotonic() < end:
        time.sleep(0.001)
    assert done(*jobs)


def test_every_launch_is_made_and_runs_take_turns() -> None:
    log: list[str] = []
    graphs: list[Any] = [Graph(name, log) for name in "ab"]
    stream: Any = None
    with Pump() as pump:
        with pump._changed:  # both are there before the first launch
            jobs = [Job(graph, stream, 30) for graph in graphs]
            pump._jobs.append(jobs[1])
        pump.add(jobs[0])
        wait_for(*jobs)
    assert log.count("a") == log.count("b") == 30
    assert "".join(log) in ("ab" * 30, "ba" * 30)


def test_no_more_is_launched_than_the_card_may_have_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    graph: Any = Graph("a", log)
    stream: Any = None
    monkeypatch.setattr(Event, "over", False)
    with Pump() as pump:
        job = Job(graph, stream, 10, bundle=3)
        pump.add(job)
        time.sleep(0.05)
        assert (len(log), job.left) == (6, 4)
        monkeypatch.setattr(Event, "over", True)
        wait_for(job)
    assert len(log) == 10


def test_an_error_ends_its_own_job_alone() -> None:
    log: list[str] = []
    bad: Any = Graph("bad", log, fails_at=2)
    good: Any = Graph("good", log)
    stream: Any = None
    with Pump() as pump:
        jobs = [Job(bad, stream, 10), Job(good, stream, 10)]
        for job in jobs:
            pump.add(job)
        wait_for(*jobs)
    assert "illegal memory access" in str(jobs[0].error)
    assert jobs[0].left == 8
    assert log.count("good") == 10


def test_leaving_ends_the_thread() -> None:
    graph: Any = Graph("slow", [])
    stream: Any = None
    with Pump() as pump:
        pump.add(Job(graph, stream, 10**9))
    assert pump._thread is not None
    assert not pump._thread.is_alive()


def a_lane(out: Path, pump: Pump) -> Lane:
    """A run's lane; a stream it has only by name."""
    lane = Lane(
        make_config("rotated-digits", "mc-sgd"), out, Options(), StopRequest(), Watcher(), pump, stream=None
    )
    lane.stream = object()  # type: ignore[assignment]
    return lane


def test_what_a_lane_repeats_is_launched_before_it_goes_on_and_then_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    monkeypatch.setattr(captured, "_capture", lambda work, context, *generators: Graph("launched", log))
    with Pump() as pump:
        lane = a_lane(tmp_path, pump)
        lane._context._repeat(lambda: log.append("ordinary"), 40, [])
        lane._await_launches()
        assert log == ["ordinary"] * 2 + ["launched"] * 38
        assert lane._context._repeated is not None
        graph = weakref.ref(lane._context._repeated[0])
        lane._context.forget_pool()
        for _ in range(1000):  # the pump may be about to let go
            gc.collect()
            if graph() is None:
                break
            time.sleep(0.001)
        assert graph() is None


def test_a_launch_that_fails_ends_the_run_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "_capture", lambda work, context, *generators: Graph("bad", [], fails_at=3))
    with Pump() as pump:
        lane = a_lane(tmp_path, pump)
        lane._context._repeat(lambda: None, 40, [])
        with pytest.raises(RuntimeError, match="illegal memory access"):
            lane._await_launches()
