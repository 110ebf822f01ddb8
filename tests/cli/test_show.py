import json
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from corestream.cli.hyperparameters import with_choices
from corestream.cli.show import show
from corestream.errors import ConfigError, DataError

app = typer.Typer()
app.command()(with_choices(show))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_card_shows_counts_and_writes_a_sheet(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = run("rotated-digits", "--imbalanced", "--noise", "0.6", "--tasks", "3")
    assert "3 tasks, 10 classes, domain scenario" in text
    assert "inputs 1 × 16 × 16" in text
    assert "18°" in text
    assert "contact sheet: corestream-rotated-digits.png" in text
    with Image.open(tmp_path / "corestream-rotated-digits.png") as sheet:
        assert sheet.format == "PNG"


def test_json_is_an_object_with_lists_of_counts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    card = json.loads(run("rotated-digits", "--json"))
    assert card["tasks"] == 10
    assert card["classes"] == 10
    assert card["train"] == [1297] * 10
    assert card["test"] == [500] * 10
    assert list(tmp_path.iterdir()) == []


def test_a_sheet_goes_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "sheet.png"
    card = json.loads(run("rotated-digits", "--tasks", "1", "--json", "--sheet", str(path)))
    assert card["sheet"] == str(path)
    assert path.is_file()


def test_options_of_the_benchmark_are_passed_on() -> None:
    card = json.loads(run("rotated-digits", "--json", "--imbalanced", "-o", "full_classes=fixed"))
    assert card["settings"]["full_classes"] == "fixed"
    assert card["train_per_class"][0]["5"] > 50


def test_they_may_be_given_as_options_of_the_command() -> None:
    asked = ("rotated-digits", "--json", "--imbalanced")
    assert run(*asked, "--full-classes", "fixed") == run(*asked, "-o", "full_classes=fixed")
    card = json.loads(run(*asked, "--full-classes", "fixed"))
    assert card["settings"]["full_classes"] == "fixed"


@pytest.mark.parametrize("given", [["--image-size", "8"], ["-o", "image_size=8"]])
def test_a_choice_that_the_benchmark_does_not_have_is_told(given: list[str]) -> None:
    with pytest.raises(ConfigError, match="rotated-digits has no option 'image_size'"):
        run("rotated-digits", *given)


@pytest.mark.parametrize("width", [80, 60, 40])
def test_a_narrow_terminal_leaves_nothing_out(tmp_path: Path, monkeypatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    text = run("rotated-digits", "--tasks", "2", "--imbalanced", "--noise", "0.6")
    assert "…" not in text
    assert "349" in text
    assert ("10 classes" in text.partition("task  train")[2]) == (width < 80)


def test_a_folder_has_a_card_too(tmp_path: Path) -> None:
    for name in ("ant", "bee", "cat"):
        (tmp_path / name).mkdir()
        for i in range(5):
            Image.new("RGB", (9, 9)).save(tmp_path / name / f"{i}.png")
    (tmp_path / "ant/broken.png").write_bytes(b"x")
    arguments = (f"folder:{tmp_path}", "--classes-per-task", "1", "--image-size", "8")
    card = json.loads(run(*arguments, "--json"))
    assert (card["tasks"], card["train"], card["input_shape"]) == (3, [4, 4, 4], [3, 8, 8])
    shown = run(*arguments, "--sheet", str(tmp_path / "sheet.png"))
    assert "broken.png" in shown
    (head,) = [line.split() for line in shown.splitlines() if line.split()[:2] == ["task", "train"]]
    assert head[-3:] == ["ant", "bee", "cat"]


def test_the_scenario_of_a_folder_follows_its_split(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        for i in range(9):
            Image.new("RGB", (9, 9)).save(tmp_path / name / f"{i}.png")
    card = json.loads(run(f"folder:{tmp_path}", "--json", "-o", "split=time", "-o", "num_tasks=2"))
    assert (card["scenario"], card["tasks"]) == ("domain", 2)


def test_a_seed_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed is -1; allowed are 0, 1, 2, …"):
        run("rotated-digits", "--seed", "-1")


def test_a_wrong_name_and_missing_files_are_told() -> None:
    with pytest.raises(ConfigError, match="did you mean 'rotated-digits'"):
        run("rotated-digit")
    with pytest.raises(DataError, match="corestream data fetch mnist"):
        run("rotated-mnist", "--offline", "--data-dir", "/nowhere")


def test_a_sheet_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        run("rotated-digits", "--tasks", "1", "--sheet", str(tmp_path / "file" / "sheet.png"))


def test_one_task_and_one_class_are_not_told_in_the_plural(tmp_path: Path) -> None:
    (tmp_path / "pictures" / "ant").mkdir(parents=True)
    for number in range(5):
        Image.new("RGB", (9, 9)).save(tmp_path / "pictures" / "ant" / f"{number}.png")
    sheet = ("--sheet", str(tmp_path / "sheet.png"), "--image-size", "8")
    assert ": 1 task, 1 class, " in run(f"folder:{tmp_path / 'pictures'}", *sheet)
