import io
import json
import os
import subprocess
import sys

import pytest
from rich.console import Console

from corestream.cli import progress
from corestream.cli.progress import RunDisplay, title
from corestream.studies.config import RunConfig, make_config
from corestream.studies.drive import Progress
from corestream.studies.pool import Outcome

CONFIG = RunConfig("rotated-digits", "ocs", seed=3, imbalanced=True, noise=0.6)


@pytest.fixture
def shown(monkeypatch):
    """What a display writes, on a terminal or elsewhere."""

    def show(total, terminal):
        written = io.StringIO()
        console = Console(file=written, force_terminal=terminal, width=160)
        monkeypatch.setattr(progress, "Console", lambda file: console)
        with RunDisplay(total) as display:
            display.began(CONFIG)
            display.progressed(CONFIG, Progress(1, 2, 0.5, 75.0, 0.812, task_closed=True))
            display._bars.refresh()
            display.ended(Outcome(CONFIG, "failed", "out of memory"))
        return written.getvalue()

    return show


def test_a_run_in_a_few_words():
    assert title(CONFIG) == "ocs on rotated-digits --imbalanced --noise 0.6, seed 3"


def test_runs_of_one_method_are_told_apart():
    words = title(make_config("rotated-digits", "ocs", overrides={"weights": (1, 0, 0), "warm_start": 3}))
    assert words == "ocs (warm start 3, weights 1,0,0) on rotated-digits, seed 0"
    assert title(make_config("rotated-digits", "uniform", protocol="ocs-schedule")).startswith(
        "uniform:ocs-schedule on"
    )


def test_a_step_that_is_not_captured_is_told_once_for_all_runs(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda file: Console(file=written, width=160))
    with RunDisplay(3) as display:
        for seed in range(3):
            display.fell_back(RunConfig("rotated-digits", "ocs", seed=seed), "RuntimeError: no such kernel")
    assert written.getvalue().splitlines() == [
        "ocs on rotated-digits, seed 0: its steps are not captured, and take longer: RuntimeError: no such kernel"
    ]


def test_bars_tell_task_accuracy_and_time_left(shown):
    text = shown(2, terminal=True)
    assert "task 2/2, accuracy 81.2 %, 1 min 15 s left" in text
    assert "0/2 runs" in text


def test_plain_lines_without_a_terminal(shown):
    text = shown(1, terminal=False)
    assert text.splitlines()[0] == f"{title(CONFIG)}: task 1/2 done, accuracy 81.2 %, 1 min 15 s left"
    assert "\x1b" not in text


def test_a_failed_run_is_told_with_its_reason(shown):
    assert "failed: out of memory" in shown(2, terminal=False)


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device")])
def test_a_reader_that_has_gone_stops_no_run(monkeypatch, tmp_path, error):
    class Gone(io.StringIO):
        def __init__(self, file):
            super().__init__()
            self.file = file

        def write(self, text):
            raise error

        def fileno(self):
            return self.file.fileno()

    with open(tmp_path / "stderr", "w") as file:
        monkeypatch.setattr(progress.sys, "stderr", Gone(file))
        with RunDisplay(2) as display:
            display.began(CONFIG)
            display.ended(Outcome(CONFIG, "done", accuracy=0.5))
            display.ended(Outcome(CONFIG, "done", accuracy=0.5))
        file.write("goes nowhere")
    assert not (tmp_path / "stderr").read_text()


def test_all_runs_are_made_and_told_where_nobody_reads_their_progress(tmp_path):
    options = [
        "--methods",
        "finetune",
        "--seeds",
        "2",
        "--tasks",
        "1",
        "--jobs",
        "1",
        "--json",
        "--sweeps",
        "1",
    ]
    reading, writing = os.pipe()
    os.close(reading)
    command = [
        sys.executable,
        "-m",
        "corestream",
        "compare",
        "rotated-digits",
        *options,
        "--out",
        str(tmp_path),
    ]
    answer = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=writing, text=True, check=False, timeout=300
    )
    os.close(writing)
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["methods"]["finetune"]["runs"] == 2


def test_equal_errors_are_told_once_and_others_by_themselves(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda file: Console(file=written, width=160))
    with RunDisplay(4) as display:
        for seed, error in enumerate(["no files", "no memory", "no files", "no files"]):
            display.ended(Outcome(RunConfig("rotated-digits", "ocs", seed=seed), "failed", error))
    assert written.getvalue().splitlines() == [
        "[1/4] ocs on rotated-digits, seed 0, failed: no files",
        "[2/4] ocs on rotated-digits, seed 1, failed: no memory",
        "ocs on rotated-digits, seed 0: … and 2 more runs likewise",
    ]


def test_runs_that_were_only_interrupted_are_not_called_failed(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda file: Console(file=written, width=160))
    with RunDisplay(2) as display:
        for seed in range(2):
            display.ended(Outcome(RunConfig("rotated-digits", "ocs", seed=seed), "interrupted"))
    assert written.getvalue().splitlines() == [
        "[1/2] ocs on rotated-digits, seed 0, interrupted",
        "ocs on rotated-digits, seed 0: … and 1 more run likewise",
    ]
