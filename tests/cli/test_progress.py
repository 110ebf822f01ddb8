import io

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
        monkeypatch.setattr(progress, "Console", lambda stderr: console)
        with RunDisplay(total) as display:
            display.began(CONFIG)
            display.progressed(CONFIG, Progress(1, 2, 50, 0.5, 75.0, 0.812, task_closed=True))
            display._bars.refresh()
            display.ended(Outcome(CONFIG, "failed", "out of memory"), None)
        return written.getvalue()

    return show


def test_a_run_in_a_few_words():
    assert title(CONFIG) == "ocs on rotated-digits imbalanced noise 0.6 seed 3"


def test_runs_of_one_method_are_told_apart():
    words = title(make_config("rotated-digits", "ocs", overrides={"weights": (1, 0, 0), "warm_start": 3}))
    assert words == "ocs (warm start 3, weights 1,0,0) on rotated-digits seed 0"
    assert title(make_config("rotated-digits", "uniform", protocol="ocs-schedule")).startswith(
        "uniform:ocs-schedule on"
    )


def test_a_step_that_is_not_captured_is_told_once_for_all_runs(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=written, width=160))
    with RunDisplay(3) as display:
        for seed in range(3):
            display.fell_back(RunConfig("rotated-digits", "ocs", seed=seed), "RuntimeError: no such kernel")
    assert written.getvalue().splitlines() == [
        "ocs on rotated-digits seed 0: its steps are not captured, and take longer: RuntimeError: no such kernel"
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
