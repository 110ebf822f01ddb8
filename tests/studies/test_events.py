import io

import pytest

import corestream.studies.events as events_module
from corestream.errors import RunError
from corestream.studies.events import NAME, EventLog, read_events


def test_events_come_back_in_order_with_their_facts(tmp_path):
    log = EventLog(tmp_path)
    log.write("started")
    log.write("task", task=0, accuracies=[0.5])
    events = read_events(tmp_path)
    assert [event["event"] for event in events] == ["started", "task"]
    assert events[1]["accuracies"] == [0.5]
    assert events[0]["time"] <= events[1]["time"]


def test_a_torn_last_line_is_left_out_and_the_next_event_begins_a_line(tmp_path):
    EventLog(tmp_path).write("started")
    with open(tmp_path / NAME, "a") as file:
        file.write('{"event": "ta')
    assert [event["event"] for event in read_events(tmp_path)] == ["started"]
    EventLog(tmp_path).write("resumed")
    assert [event["event"] for event in read_events(tmp_path)] == ["started", "resumed"]


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"no": "name"}', '{"event": 3}', ""])
def test_damage_inside_the_log_names_the_line(tmp_path, line):
    EventLog(tmp_path).write("started")
    with open(tmp_path / NAME, "a") as file:
        file.write(line + "\n")
    with pytest.raises(RunError, match="line 2"):
        read_events(tmp_path)


def test_a_run_without_events_has_none(tmp_path):
    assert read_events(tmp_path) == []


def test_half_an_event_on_a_full_disk_is_taken_back(tmp_path, monkeypatch):
    log = EventLog(tmp_path)
    log.write("started")

    class Full(io.FileIO):
        def write(self, data):
            return super().write(data[:9])

    with monkeypatch.context() as disk:
        disk.setattr(events_module, "open", lambda path, mode, buffering: Full(path, mode), raising=False)
        with pytest.raises(OSError, match="No space left"):
            log.write("task", task=0)
    log.write("failed")
    assert [event["event"] for event in read_events(tmp_path)] == ["started", "failed"]
