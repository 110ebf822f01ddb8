"""Several processes: one run has one maker, workers end with their parent, a study survives its runs."""

import json
import os
import signal
from pathlib import Path

RUN = ["run", "rotated-digits", "--method", "ocs", "--threads", "1"]
COMPARE = ["compare", "rotated-digits", "--methods", "ocs", "--seeds", "2", "--jobs", "2"]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def workers_at_work(out, holders=2):
    """The pids in the locks of runs that have begun."""
    begun = [path.parent / "lock" for path in out.glob("*/config.json")]
    pids = {json.loads(path.read_text())["pid"] for path in begun if path.read_text()}
    return pids if len(pids) == holders else None


def test_of_two_processes_one_works_and_the_other_says_so(corestream, waiting, events_of, tmp_path):
    command = [*RUN, "--tasks", "3", "--out", tmp_path]
    first = corestream.start(*command)
    waiting(lambda: events_of(tmp_path))
    second = corestream.run(*command)
    assert second.returncode == 1
    assert f"another process (pid {first.pid}" in second.stderr
    first.communicate(timeout=120)
    assert first.returncode == 0
    assert [event["event"] for event in events_of(tmp_path)].count("started") == 1


def test_workers_end_with_a_killed_parent_and_keep_their_work(corestream, waiting, tmp_path):
    parent = corestream.start(*COMPARE, "--out", tmp_path)
    pids = waiting(lambda: workers_at_work(tmp_path), what="two workers")
    parent.kill()
    parent.wait()
    waiting(lambda: not any(alive(pid) for pid in pids), seconds=30, what="the workers' end")
    for folder in tmp_path.iterdir():
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        assert [event["event"] for event in events][-2:] == ["checkpoint", "interrupted"]


def test_a_terminated_study_ends_its_workers_first(corestream, waiting, tmp_path):
    parent = corestream.start(*COMPARE, "--out", tmp_path)
    pids = waiting(lambda: workers_at_work(tmp_path), what="two workers")
    parent.send_signal(signal.SIGTERM)
    _, stderr = parent.communicate(timeout=60)
    assert parent.returncode == 143
    assert "the same command continues" in stderr
    assert not any(alive(pid) for pid in pids)


def test_a_killed_worker_is_recorded_the_other_run_goes_on_and_only_the_hole_is_filled_later(
    corestream, waiting, tmp_path
):
    command = [*COMPARE, "--tasks", "2", "--sweeps", "6", "--out", tmp_path, "--json"]
    study = corestream.start(*command)
    victim = waiting(lambda: workers_at_work(tmp_path), what="two workers").pop()
    os.kill(victim, signal.SIGKILL)
    stdout, stderr = study.communicate(timeout=120)
    assert study.returncode == 1
    found = json.loads(stdout)["methods"]["ocs"]
    assert (found["runs"], found["expected"], found["failed"]) == (1, 2, 1)
    assert "killed by SIGKILL" in stderr
    whole = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/accuracy.json")}
    assert len(whole) == 1

    again = corestream.run(*command)
    assert again.returncode == 0
    found = json.loads(again.stdout)["methods"]["ocs"]
    assert (found["runs"], found["failed"]) == (2, 0)
    assert all(path.stat().st_mtime_ns == time for path, time in whole.items())


def test_running_out_of_memory_is_recorded_with_its_traceback_and_leaves_a_hole(corestream, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(
        'benchmark = "rotated-digits"\nmethods = ["ocs", "uniform"]\nseeds = 1\ntasks = 1\n'
        "[settings]\nsweeps = 1\n[settings.uniform]\nwidth = 100000000\n"
    )
    study = corestream.run("compare", "--config", file, "--out", tmp_path / "runs", "--json")
    assert study.returncode == 1
    found = json.loads(study.stdout)["methods"]
    assert (found["ocs"]["runs"], found["ocs"]["failed"]) == (1, 0)
    assert (found["uniform"]["runs"], found["uniform"]["failed"]) == (0, 1)
    (folder,) = found["uniform"]["folders"]
    last = json.loads(Path(folder, "events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "failed"
    assert "memory" in last["error"]
    assert "Traceback" in last["traceback"]
