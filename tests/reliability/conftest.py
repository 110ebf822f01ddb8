"""Real processes of the command line: started, watched, killed.

They are forked from a server that has imported everything, so that each costs a moment and not two seconds.
"""

import json
import multiprocessing
import os
import runpy
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["corestream.cli", "sklearn.datasets"])
CHILD = Path(__file__).with_name("child.py")


class Started:
    """A process of `corestream …`, with the verbs of subprocess.Popen that the tests need."""

    def __init__(self, arguments, folder: Path, limit=None, terminal=None) -> None:
        self._outputs = [folder / "stdout", folder / "stderr"]
        for path in self._outputs:
            path.touch()
        streams = [terminal] * 3 if terminal else ["/dev/null", *map(str, self._outputs)]
        values = {"argv": ["corestream", *map(str, arguments)], "streams": streams, "limit": limit}
        self._process = CONTEXT.Process(target=runpy.run_path, args=(str(CHILD), values, "__main__"))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=300.0):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("corestream", timeout)
        return self._process.exitcode

    def send_signal(self, signum):
        os.kill(self.pid, signum)

    def kill(self):
        self._process.kill()

    def communicate(self, timeout=300.0):
        self.wait(timeout)
        return self.stdout, self.stderr

    @property
    def stdout(self):
        return self._outputs[0].read_text()

    @property
    def stderr(self):
        return self._outputs[1].read_text()


class Launcher:
    """Starts `corestream …` and ends what is left of it after the test."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, count()
        self._started: list[Started] = []

    def start(self, *arguments, **keywords) -> Started:
        folder = self._folder / str(next(self._number))
        folder.mkdir()
        self._started.append(Started(arguments, folder, **keywords))
        return self._started[-1]

    def run(self, *arguments, **keywords) -> Started:
        """To its end."""
        process = self.start(*arguments, **keywords)
        process.wait()
        return process

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def corestream(tmp_path_factory):
    launcher = Launcher(tmp_path_factory.mktemp("output"))
    yield launcher
    launcher.close()


def wait_for(condition, seconds=120.0, what="the condition"):
    """The first true value of `condition()`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come within {seconds} s")


@pytest.fixture
def waiting():
    return wait_for


@pytest.fixture
def events_of():
    """The whole lines of a run's events.jsonl while it is being written; the only run's under `out`."""

    def read(out: Path):
        paths = list(out.glob("*/events.jsonl"))
        lines = paths[0].read_text().split("\n")[:-1] if paths else []
        return [json.loads(line) for line in lines]

    return read
