from pathlib import Path

import pytest
from typer.testing import CliRunner

from corestream.cli import app
from corestream.errors import RunError


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
