"""SIGINT and SIGTERM leave a clean checkpoint, a clean terminal and the right exit status."""

import os
import pty
import signal
import termios
from contextlib import suppress

import pytest

RUN = [
    "run",
    "rotated-digits",
    "--method",
    "ocs",
    "--sweeps",
    "4",
    "--checkpoint-every",
    "1000000",
    "--threads",
    "1",
]


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_after_a_checkpoint_of_the_step_it_was_at(
    corestream, waiting, events_of, tmp_path, signum, status
):
    process = corestream.start(*RUN, "--out", tmp_path)
    waiting(lambda: any(event["event"] == "checkpoint" for event in events_of(tmp_path)))
    process.send_signal(signum)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status
    assert "the same command continues" in stderr
    assert "Traceback" not in stderr
    *_, saved, last = events_of(tmp_path)
    assert (saved["event"], last["event"]) == ("checkpoint", "interrupted")
    assert saved["step"] > 100  # within the second task, where no checkpoint was due
    process = corestream.start(*RUN, "--out", tmp_path)
    resumed = waiting(lambda: [event for event in events_of(tmp_path) if event["event"] == "resumed"])
    assert resumed[0]["step"] == saved["step"]
    assert resumed[0]["passed_over"] == []


def test_a_terminal_is_left_as_it_was_found(corestream, waiting, events_of, tmp_path):
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    process = corestream.start(*RUN, "--out", tmp_path, terminal=os.ttyname(slave))
    shown = b""
    os.set_blocking(master, False)

    def drained():
        nonlocal shown
        with suppress(BlockingIOError):
            shown += os.read(master, 65536)
        return any(event["event"] == "task" for event in events_of(tmp_path)) or process.poll() is not None

    waiting(drained)
    process.send_signal(signal.SIGINT)
    waiting(lambda: drained() and process.poll() is not None, seconds=60)
    drained()
    assert process.returncode == 130
    assert termios.tcgetattr(slave) == before
    assert b"accuracy" in shown
    assert b"\x1b[?25l" in shown  # the bars hid the cursor …
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # … and gave it back
    os.close(master)
    os.close(slave)
