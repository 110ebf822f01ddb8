import pytest

from corestream.studies import drive
from corestream.studies.config import make_config
from corestream.studies.drive import Driver, Options
from corestream.studies.events import EventLog, read_events
from corestream.studies.run import make_run
from corestream.studies.stopping import Interrupted, StopRequest
from corestream.studies.study import _seconds


class Clock:
    """Stands still unless it is told."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(drive, "time", clock)
    return clock


@pytest.fixture
def config():
    return make_config("rotated-digits", "finetune", tasks=2, overrides={"sweeps": 1, "batch_size": 400})


class Process:
    """A run as one process makes it: three steps a task, each of ten seconds."""

    def __init__(self, config, folder, clock):
        clock.now += 5000  # between two processes
        self.clock, self.run = clock, make_run(config, folder)
        self.run.restore()
        self.driver = Driver(self.run, Options(), EventLog(folder), StopRequest())

    def step(self, times):
        for _ in range(times):
            self.clock.now += 10
            self.driver.after_step(self.run.step())
            self.driver._saved_at = self.clock.now  # no checkpoint by time


def test_a_resumed_run_counts_what_the_checkpoint_kept_and_not_what_a_kill_threw_away(
    config, tmp_path, clock
):
    first = Process(config, tmp_path, clock)
    first.step(1)
    first.driver.save()
    first.step(1)  # thrown away
    second = Process(config, tmp_path, clock)
    second.step(1)
    second.driver.save()
    third = Process(config, tmp_path, clock)
    third.step(1)  # ends the task
    third.step(2)  # thrown away
    Process(config, tmp_path, clock).step(3)
    events = read_events(tmp_path)
    assert [event["seconds"] for event in events if event["event"] == "task"] == [30, 30]
    assert _seconds(events) == 60


def test_a_checkpoint_says_how_long_its_task_has_been_open(config, tmp_path, clock):
    process = Process(config, tmp_path, clock)
    process.step(2)
    process.driver.save()
    process.step(1)
    told = [event["task_seconds"] for event in read_events(tmp_path) if event["event"] == "checkpoint"]
    assert told == [20, 0]


def test_a_damaged_log_keeps_no_run_from_going_on(config, tmp_path, clock):
    first = Process(config, tmp_path, clock)
    first.step(1)
    first.driver.save()
    log = tmp_path / "events.jsonl"
    log.write_text("damaged\n" + log.read_text())
    assert Process(config, tmp_path, clock).run.position.step == 1


def test_who_stops_a_run_is_told_the_task_counted_from_1(config, tmp_path, clock):
    process = Process(config, tmp_path, clock)
    process.step(4)
    with pytest.raises(Interrupted, match="interrupted at task 2, step 4; the same command continues"):
        process.driver._stop(2)
    process.step(2)
    with pytest.raises(Interrupted, match="interrupted at task 2, step 6"):
        process.driver._stop(2)
