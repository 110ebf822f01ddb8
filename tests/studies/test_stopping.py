import os
import signal
import subprocess
import sys
import time

import pytest

from corestream.studies.stopping import Interrupted, StopRequest


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_becomes_a_request_and_the_handlers_come_back(signum):
    before = signal.getsignal(signum)
    with StopRequest() as stop:
        os.kill(os.getpid(), signum)
        assert stop.signum == signum
        assert signal.getsignal(signum) is before  # a second signal is no longer caught
    assert signal.getsignal(signum) is before


def test_the_exit_status_is_what_a_shell_expects():
    assert Interrupted(signal.SIGINT, "").exit_status == 130
    assert Interrupted(signal.SIGTERM, "").exit_status == 143


LOOP = """
import time
from corestream.studies.stopping import StopRequest
with StopRequest() as stop:
    print("at work", flush=True)
    while stop.signum is None:
        time.sleep(0.001)
    print("asked", flush=True)
    time.sleep(SECONDS)
print("ended in order")
"""


def at_work(seconds):
    """A process that ends so many seconds after it was asked to."""
    loop = LOOP.replace("SECONDS", str(seconds))
    process = subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "at work\n"
    return process


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_twice_at_once_is_one_request(signum):
    process = at_work(0.5)
    for _ in range(3):  # as `timeout` does it, which tells the process and its group
        process.send_signal(signum)
        time.sleep(0.002)
    assert process.communicate(timeout=30)[0].splitlines() == ["asked", "ended in order"]
    assert process.returncode == 0


def test_a_second_request_waits_for_nothing():
    process = at_work(60)
    process.terminate()
    assert process.stdout.readline() == "asked\n"
    process.terminate()
    assert process.wait(timeout=10) == -signal.SIGTERM
