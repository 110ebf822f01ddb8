"""Real processes of the command line: started, watched, killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from corestream.cli import main; main()"]
THOROUGH = os.environ.get("CORESTREAM_THOROUGH") == "1"


class Launcher:
    """Starts `corestream …` and ends what is left of it after the test."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen] = []

    def start(self, *arguments, **keywords) -> subprocess.Popen:
        keywords = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **keywords}
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([*COMMAND, *map(str, arguments)], env=environment, **keywords)
        self.started.append(process)
        return process

    def run(self, *arguments, **keywords) -> subprocess.CompletedProcess:
        process = self.start(*arguments, **keywords)
        stdout, stderr = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def corestream():
    launcher = Launcher()
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
