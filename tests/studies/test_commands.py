import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from corestream.cli import app
from corestream.studies.commands import command_of, own_words, row_command
from corestream.studies.config import RunConfig, make_config

CASES: list[dict[str, Any]] = [
    {"benchmark": "rotated-digits", "method": "ocs", "seed": 3},
    {"benchmark": "rotated-mnist", "method": "finetune", "imbalanced": True, "tasks": 3},
    {"benchmark": "rotated-mnist", "method": "uniform", "noise": 0.6, "protocol": "ocs-schedule"},
    {"benchmark": "rotated-mnist", "method": "ocs", "noise": 0.6},
    {"benchmark": "rotated-mnist", "method": "ocs", "noise": 0.6, "overrides": {"weights": (1.0, 1.0, 1.0)}},
    {"benchmark": "split-cifar100", "method": "ocs", "scenario": "class", "label_noise": 0.25},
    {"benchmark": "rotated-digits", "method": "icarl", "overrides": {"adapt": True}},
    {
        "benchmark": "split-cifar100",
        "method": "ocs",
        "overrides": {"weights": (1.0, 0.0, 0.5), "parameters": ("stem", "stage1"), "tau": 1.0},
    },
    {
        "benchmark": "rotated-digits",
        "method": "uniform",
        "overrides": {"capacity": 2000, "candidates": 1000},  # which a larger memory would enlarge
    },
    {"benchmark": "split-cifar100", "method": "ocs", "overrides": {"network": "mlp", "width": 20}},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_the_command_makes_the_same_run(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config, asked = make_config(**case), []

    def make(config: RunConfig, *_: Any, **__: Any) -> dict[str, Any]:
        asked.append(config)
        return {"status": "done", "forgetting": None, "average_accuracy": 0.5}

    monkeypatch.setattr("corestream.cli.run.make_alone", make)
    done = CliRunner().invoke(app, shlex.split(command_of(config))[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert asked == [config]


def test_defaults_are_not_spelled_out() -> None:
    command = command_of(make_config("rotated-digits", "ocs"))
    assert command == "corestream run rotated-digits --method ocs --seed 0 --device cpu"


def test_a_noisy_stream_has_its_own_defaults() -> None:
    command = command_of(make_config("rotated-mnist", "ocs", noise=0.6))
    assert command == "corestream run rotated-mnist --method ocs --seed 0 --noise 0.6 --device cpu"


def test_a_row_is_made_by_compare() -> None:
    config = make_config("rotated-mnist", "ocs", imbalanced=True, device="cuda", overrides={"lam": 1.0})
    assert row_command(config, 5) == (
        "corestream compare rotated-mnist --methods ocs --seeds 5 --imbalanced --device cuda --lam 1"
    )


def test_the_papers_settings_are_named_where_ours_are_the_default() -> None:
    ours = make_config("split-cifar100", "ocs")
    papers = make_config("split-cifar100", "ocs", protocol="paper")
    assert (ours.protocol, ours.settings["tau"]) == ("best", 1.0)
    assert (papers.protocol, papers.settings["tau"]) == ("paper", 1000.0)
    assert "--protocol paper" in command_of(papers)
    assert "--protocol" not in command_of(ours)
    assert "--protocol" not in command_of(make_config("split-cifar100", "uniform", protocol="paper"))


@pytest.mark.parametrize("unknown", [{"method": "mine"}, {"benchmark": "ours"}])
def test_settings_of_what_is_unknown_here_are_in_its_command_and_not_in_words(
    unknown: dict[str, str],
) -> None:
    known = make_config("rotated-digits", "ocs", overrides={"tau": 7.0})
    assert own_words(known) == ["tau 7"]
    config = replace(known, **unknown)
    assert own_words(config) == []
    assert "--tau 7" in command_of(config)


def test_a_setting_that_another_would_bring_along_otherwise_is_in_words() -> None:
    small = {"capacity": 2000, "candidates": 1000}
    assert own_words(make_config("rotated-digits", "uniform", overrides=small)) == [
        "candidates 1000",
        "capacity 2000",
    ]
    narrow = {"network": "mlp", "width": 20}
    assert own_words(make_config("split-cifar100", "ocs", overrides=narrow)) == ["network mlp", "width 20"]


def test_a_value_of_another_version_is_in_words_all_the_same() -> None:
    known = make_config("rotated-digits", "uniform")
    older = {**known.settings, "policy": "of old", "gone": 1}
    assert own_words(replace(known, settings=older)) == ["gone 1", "policy of old"]


def test_a_run_on_a_processor_is_made_again_with_as_many_threads() -> None:
    config = make_config("rotated-digits", "ocs")
    assert command_of(config, 1) == f"{command_of(config)} --threads 1"
    card = replace(config, device="cuda")
    assert command_of(card, 1) == command_of(card)


@pytest.mark.parametrize("own", [{"method": "mine"}, {"benchmark": "ours"}])
def test_a_command_of_ones_own_names_the_file_that_has_it(
    own: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(make_config("rotated-digits", "ocs"), **own)
    for value, said in ("", "YOUR_FILE.py"), ("my files/own.py", "'my files/own.py'"):
        monkeypatch.setenv("CORESTREAM_IMPORT", value)
        assert command_of(config).startswith(f"CORESTREAM_IMPORT={said} corestream run ")
        assert row_command(config, 3).startswith(f"CORESTREAM_IMPORT={said} corestream compare ")


def test_a_command_of_corestreams_own_names_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CORESTREAM_IMPORT", "own.py")
    for benchmark in ("rotated-digits", f"folder:{tmp_path}"):
        assert command_of(make_config(benchmark, "ocs")).startswith("corestream run ")
