"""A full disk is told as such, and costs nothing but the time since the last checkpoint."""

import signal

RUN = [
    "run",
    "rotated-digits",
    "--method",
    "ocs",
    "--tasks",
    "3",
    "--checkpoint-every",
    "50",
    "--threads",
    "1",
]


def test_a_full_disk_is_a_clear_error_and_the_last_checkpoint_stays_usable(
    corestream, waiting, events_of, tmp_path
):
    whole, full = tmp_path / "whole", tmp_path / "full"
    assert corestream.run(*RUN, "--out", whole).returncode == 0
    process = corestream.start(*RUN, "--out", full)
    waiting(lambda: sum(event["event"] == "checkpoint" for event in events_of(full)) >= 2)
    process.send_signal(signal.SIGTERM)
    process.wait()
    saved = events_of(full)[-2]["step"]

    # no file may grow beyond what events need: a checkpoint's tensors no longer fit
    stopped = corestream.run(*RUN, "--out", full, limit=200_000)
    assert stopped.returncode == 1
    assert "could not be written" in stopped.stderr
    assert "File too large" in stopped.stderr
    assert "last whole checkpoint is still there" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    (folder,) = full.iterdir()
    assert not list(folder.rglob("*.tmp"))

    assert corestream.run(*RUN, "--out", full).returncode == 0
    resumed = [event["step"] for event in events_of(full) if event["event"] == "resumed"]
    assert resumed == [saved, saved]
    assert (folder / "accuracy.json").read_bytes() == (whole / folder.name / "accuracy.json").read_bytes()


def test_a_disk_that_is_full_from_the_start_is_told_as_such(corestream, tmp_path):
    stopped = corestream.run(*RUN, "--out", tmp_path, limit=1000)
    assert stopped.returncode == 1
    assert "File too large" in stopped.stderr
    assert "Traceback" not in stopped.stderr
