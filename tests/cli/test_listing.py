import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from corestream import learners, streams
from corestream.cli import listing
from corestream.cli.paper import ABOUT
from corestream.cli.progress import title
from corestream.studies.config import make_config
from corestream.studies.results import Result
from corestream.studies.values import convert


def test_every_method_has_a_line(cli, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    answer = cli("list", "methods")
    assert answer.status == 0
    assert [line.split()[0] for line in answer.out.splitlines()] == learners.names()
    found = {
        entry["method"]: entry["description"] for entry in json.loads(cli("list", "methods", "--json").out)
    }
    assert list(found) == learners.names()
    assert all(found.values())


def test_every_benchmark_has_a_line(cli):
    found = json.loads(cli("list", "benchmarks", "--json").out)
    assert [entry["benchmark"] for entry in found][: len(streams.names())] == streams.names()


def test_everything_paper_makes_has_a_line(cli):
    found = {
        entry["study"]: entry["description"] for entry in json.loads(cli("list", "studies", "--json").out)
    }
    assert {"table1", "hyperparameters", "figure3", "figure8", "minibatch-distance"} <= set(found)
    assert list(found) == list(ABOUT)
    assert all(found.values())


def test_settings_are_shown_as_the_options_they_are(cli):
    answer = cli("list", "settings", "ocs", "--benchmark", "rotated-mnist")
    assert "--tau" in answer.out
    assert "1000" in answer.out
    values = json.loads(cli("list", "settings", "ocs", "--benchmark", "rotated-mnist", "--json").out)
    assert values["lr"] == 0.005
    noisy = cli("list", "settings", "ocs", "--benchmark", "rotated-mnist", "--noise", "0.6", "--json").out
    assert (values["weights"], json.loads(noisy)["weights"]) == ([1, 1, 1], [1, 0, 1])


def test_runs_are_listed_with_what_they_found(cli, tmp_path):
    assert json.loads(cli("list", "runs", "--out", tmp_path, "--json").out) == []
    cli("run", "rotated-digits", "--method", "finetune", "--tasks", "1", "--sweeps", "1", "--out", tmp_path)
    (found,) = json.loads(cli("list", "runs", "--out", tmp_path, "--json").out)
    assert found["status"] == "done"
    assert found["config"]["method"] == "finetune"
    assert "finetune (sweeps 1) on rotated-digits" in cli("list", "runs", "--out", tmp_path).out


def test_a_run_is_told_from_others_by_its_stream():
    config = make_config(
        "rotated-digits", "uniform", tasks=2, noise=0.4, options={"angles": "random"}, scenario="domain"
    )
    assert title(config) == "uniform on rotated-digits --noise 0.4 --tasks 2 --angles random, seed 0"
    config = make_config("split-cifar100", "uniform", scenario="class")
    assert title(config) == "uniform on split-cifar100 --scenario class, seed 0"


def test_a_wrong_method_is_answered_with_the_nearest(cli):
    answer = cli("list", "settings", "unifrom")
    assert answer.status == 2
    assert "did you mean 'uniform'" in answer.err


def test_names_that_look_like_markup_are_shown_as_they_are(capsys):
    listing._show("run", {"o[/b]/1": "folder:pics [old]"}, as_json=False)
    assert capsys.readouterr().out.split() == ["o[/b]/1", "folder:pics", "[old]"]


def test_a_folder_that_is_not_there_is_told(cli, tmp_path):
    answer = cli("list", "runs", "--out", str(tmp_path / "nosuch"))
    assert answer.status == 1
    assert "there is no folder" in answer.err


def test_what_settings_shows_can_be_typed(cli):
    shown = cli("list", "settings", "ocs").out.split()
    typed = dict(zip(shown[::2], shown[1::2], strict=False))
    assert (typed["--parameters"], typed["--score-mode"]) == ("none", "none")
    assert convert("parameters", "none", tuple[str, ...] | None) is None
    assert convert("parameters", "head", tuple[str, ...] | None) == ("head",)


def test_a_method_has_its_own_batches_on_a_folder(cli, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "0.png")
    asked = [
        json.loads(cli("list", "settings", m, f"folder:{tmp_path}", "--json").out) for m in ("uniform", "ocs")
    ]
    assert [values["batch_size"] for values in asked] == [10, 20]


def test_settings_are_those_of_the_scenario(cli):
    asked = ["list", "settings", "ocs", "--benchmark", "split-cifar100", "--json"]
    task, classes = (json.loads(cli(*asked, "--scenario", name).out) for name in ("task", "class"))
    assert (task["capacity"], classes["capacity"]) == (100, 1000)
    assert cli(*asked, "--scenario", "domain").status == 2


def test_a_folder_without_runs_is_told_in_a_line(cli, tmp_path):
    answer = cli("list", "runs", "--out", tmp_path)
    assert (answer.status, answer.out.replace("\n", "")) == (0, f"no run in {tmp_path} has ended or failed")


def test_runs_that_have_only_begun_are_counted_before_they_are_listed(capsys, monkeypatch, tmp_path):
    begun = {Path(name): make_config("rotated-digits", "ocs", seed=seed) for seed, name in enumerate("ab")}
    monkeypatch.setattr(listing, "unfinished_runs", lambda out: begun)
    listing.runs(tmp_path)
    lines = " ".join(capsys.readouterr().out.split())
    assert lines.startswith(f"no run in {tmp_path} has ended or failed; 2 have begun: a ocs on")


@pytest.mark.parametrize("named", ["DIR", "--out"])
def test_the_folder_of_runs_may_be_named_with_or_without_its_option(cli, tmp_path, named):
    words = [tmp_path] if named == "DIR" else [named, tmp_path]
    assert f"no run in {tmp_path}" in cli("list", "runs", *words).out.replace("\n", "")


def test_the_benchmark_may_be_named_with_or_without_its_option(cli):
    plain, option = (
        cli("list", "settings", "ocs", *words, "--json").out
        for words in (["rotated-mnist"], ["--benchmark", "rotated-mnist"])
    )
    assert plain == option != cli("list", "settings", "ocs", "--json").out


@pytest.mark.parametrize(
    "asked", [["settings", "ocs", "rotated-mnist", "--benchmark", "x"], ["runs", "a", "--out", "b"]]
)
def test_what_is_given_twice_is_refused(cli, asked):
    answer = cli("list", *asked)
    assert answer.status == 2
    assert "two words for one choice" in answer.err


def test_a_run_of_an_older_version_is_told_apart(capsys, monkeypatch, tmp_path):
    config = make_config("rotated-digits", "finetune").to_dict()
    found = [
        Result(config, {"average_accuracy": 0.5}, folder=Path(name), older=older)
        for name, older in (("a", True), ("b", False))
    ]
    monkeypatch.setattr(listing, "read_runs", lambda out: found)
    listing.runs(tmp_path)
    lines = " ".join(capsys.readouterr().out.split())
    assert lines == (
        "a finetune on rotated-digits, seed 0: 50.0 % (of an older version) b finetune on rotated-digits, seed 0: 50.0 %"
    )


@pytest.mark.parametrize("width", [80, 50, 30])
def test_a_narrow_terminal_leaves_nothing_out(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    folder, words = (
        "/data/" + "runs/" * 12 + "0123456789abcdef",
        "ocs on folder:/" + "pictures/" * 6 + " seed 0: 81.2 %",
    )
    listing._show("run", {folder: words}, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    middle = lines[0].index(" ")  # the first column is full of a name without any
    columns = [line[:middle] for line in lines], [line[middle:] for line in lines]
    assert ["".join("".join(column).split()) for column in columns] == [folder, words.replace(" ", "")]


def test_runs_of_one_name_are_told_apart_by_what_they_differ_in(capsys, monkeypatch, tmp_path):
    known = make_config("rotated-digits", "uniform", overrides={"adapt": False, "k": 5})
    settings = {**known.settings, "adapt": True}
    unknown = [
        replace(known, method="mine", fingerprint="ab"),
        replace(known, method="mine", settings=settings),
    ]
    found = [
        Result(config.to_dict(), {"average_accuracy": 0.5}, folder=Path(name))
        for name, config in zip("ab", unknown, strict=True)
    ]
    begun = {Path("c"): known, Path("d"): replace(known, device="cuda"), Path("e"): replace(known, seed=1)}
    monkeypatch.setattr(listing, "read_runs", lambda out: found)
    monkeypatch.setattr(listing, "unfinished_runs", lambda out: begun)
    monkeypatch.setenv("COLUMNS", "200")
    listing.runs(tmp_path)
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "a mine on rotated-digits, seed 0 (fingerprint ab, adapt false): 50.0 %",
        "b mine on rotated-digits, seed 0 (fingerprint none, adapt true): 50.0 %",
        "c uniform on rotated-digits, seed 0 (device cpu): begun and not ended",
        "d uniform on rotated-digits, seed 0 (device cuda): begun and not ended",
        "e uniform on rotated-digits, seed 1: begun and not ended",
    ]
