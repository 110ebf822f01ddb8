import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corestream.cli import app
from corestream.errors import RunError
from corestream.studies.config import FORMAT, make_config


def test_a_folder_without_runs_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=tmp_path.name):
        CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there is no folder .*nothere"):
        CliRunner().invoke(app, ["report", str(tmp_path / "nothere")], catch_exceptions=False)


def test_a_page_that_is_a_folder_is_told_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is a folder; name the page in it"):
        CliRunner().invoke(app, ["report", str(tmp_path), "--page", str(tmp_path)], catch_exceptions=False)


def test_a_run_that_was_begun_and_has_not_ended_is_on_the_page(cli, tmp_path: Path) -> None:
    quick = ["--tasks", "1", "--sweeps", "1", "--device", "cpu", "--out", tmp_path]
    for seed in (0, 1):
        cli("run", "rotated-digits", "--method", "finetune", "--seed", seed, "--threads", "1", *quick)
    unended = make_config("rotated-digits", "finetune", seed=1, tasks=1, overrides={"sweeps": 1})
    (tmp_path / unended.digest() / "accuracy.json").unlink()
    told = json.loads(cli("report", tmp_path, "--json").out)
    assert (told["runs"], told["unfinished"]) == (1, 1)
    html = (tmp_path / "report.html").read_text()
    assert "1 finished run, 1 begun and not ended" in html
    assert "<li>finetune (sweeps 1), rotated-digits --tasks 1, seed 1</li>" in html
    assert "--device cpu --sweeps 1 --threads 1" in html

    listed = {
        run["config"]["seed"]: run["status"]
        for run in json.loads(cli("list", "runs", "--out", tmp_path, "--json").out)
    }
    assert listed == {0: "done", 1: "unfinished"}
    assert "seed 1: begun and not ended" in " ".join(cli("list", "runs", "--out", tmp_path).out.split())


def test_where_no_run_has_ended_those_begun_are_counted(cli, tmp_path: Path) -> None:
    config = make_config("rotated-digits", "finetune")
    folder = tmp_path / config.digest()
    folder.mkdir()
    record = {"format": FORMAT, "config": config.to_dict(), "environment": {}}
    (folder / "config.json").write_text(json.dumps(record))
    answer = cli("report", tmp_path)
    assert answer.status == 1
    assert "has ended, 1 begun;" in answer.err


def test_a_page_may_be_about_several_folders(cli, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for seed, folder in enumerate(folders):
        quick = ["--tasks", "1", "--sweeps", "1", "--threads", "1", "--device", "cpu", "--out", folder]
        cli("run", "rotated-digits", "--method", "finetune", "--seed", seed, *quick)
    (made,) = (path.parent for path in folders[0].glob("*/config.json"))
    begun = folders[1] / made.name
    begun.mkdir()
    (begun / "config.json").write_text((made / "config.json").read_text())  # it has ended in the other one
    told = json.loads(cli("report", *folders, folders[0], "--json").out)  # one named twice is read once
    assert told == {"page": str(folders[0] / "report.html"), "runs": 2, "unfinished": 0}
    html = (folders[0] / "report.html").read_text()
    assert "<h1>Runs in one, two</h1>" in html
    assert "2 finished runs" in html
    assert "nothere" in cli("report", *folders, tmp_path / "nothere").err
