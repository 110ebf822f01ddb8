"""A run killed at any moment and started again ends as the uninterrupted one does, bit for bit."""

import os
import random
import signal
import subprocess

import pytest
from safetensors.torch import load_file

THOROUGH = os.environ.get("CORESTREAM_THOROUGH") == "1"
KILLS, TASKS, SWEEPS = (25, 10, 10) if THOROUGH else (3, 2, 12)
RUN = [
    "run",
    "rotated-digits",
    "--method",
    "ocs",
    "--noise",
    "0.4",
    "--dropout",
    "0.2",
    "--tasks",
    TASKS,
    "--sweeps",
    SWEEPS,
]
RUN += ["--checkpoint-every", "20", "--record", "picks,scores", "--threads", "1"]
COMPARED = ("accuracy.json", "memory.safetensors", "picks.npy", "scores.npy")


def only_folder(out):
    (folder,) = out.iterdir()
    return folder


def test_sigkill_at_random_moments_changes_no_bit(corestream, waiting, events_of, tmp_path):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    assert corestream.run(*RUN, "--out", whole).returncode == 0
    work = sum(event["seconds"] for event in events_of(whole) if event["event"] == "task")
    dice = random.Random(os.urandom(8))
    kills = 0
    while kills < KILLS:
        before = len(events_of(torn))
        process = corestream.start(*RUN, "--out", torn)
        waiting(lambda now=process, seen=before: len(events_of(torn)) > seen or now.poll() is not None)
        with pytest.raises(subprocess.TimeoutExpired):  # it is still at work
            process.wait(
                timeout=dice.uniform(0, work / (2 * KILLS))
            )  # half the work at most: none ends early
        process.kill()
        assert process.wait() == -signal.SIGKILL
        kills += 1
    assert corestream.run(*RUN, "--out", torn).returncode == 0
    # those killed before their first checkpoint start anew
    assert sum(event["event"] == "resumed" for event in events_of(torn)) >= KILLS // 2
    assert only_folder(torn).name == only_folder(whole).name
    for name in COMPARED:
        assert (only_folder(torn) / name).read_bytes() == (only_folder(whole) / name).read_bytes(), name
    one, other = (
        load_file(next((only_folder(out) / "checkpoint").glob("*.safetensors"))) for out in (whole, torn)
    )
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)


def test_a_finished_run_started_again_exits_at_once_and_writes_nothing(corestream, events_of, tmp_path):
    command = ["run", "rotated-digits", "--method", "ocs", "--tasks", "1", "--sweeps", "1", "--out", tmp_path]
    first = corestream.run(*command, "--json")
    written = {path: path.stat().st_mtime_ns for path in only_folder(tmp_path).rglob("*")}
    second = corestream.run(*command, "--json")
    assert first.returncode == second.returncode == 0
    assert first.stdout == second.stdout
    assert {path: path.stat().st_mtime_ns for path in only_folder(tmp_path).rglob("*")} == written


def test_a_run_whose_checkpoints_are_torn_says_so_and_does_not_start_over(
    corestream, waiting, events_of, tmp_path
):
    process = corestream.start(*RUN, "--out", tmp_path)
    waiting(lambda: sum(event["event"] == "checkpoint" for event in events_of(tmp_path)) >= 3)
    process.kill()
    process.wait()
    for path in (only_folder(tmp_path) / "checkpoint").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-10])
    again = corestream.run(*RUN, "--out", tmp_path)
    assert again.returncode == 1
    assert "no checkpoint" in again.stderr
    assert "torn" in again.stderr
    assert "Traceback" not in again.stderr
    for path in (only_folder(tmp_path) / "checkpoint").iterdir():
        path.unlink()
    gone = corestream.run(*RUN, "--out", tmp_path)
    assert gone.returncode == 1
    assert "they are gone" in gone.stderr
