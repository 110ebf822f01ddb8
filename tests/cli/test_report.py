from pathlib import Path

import pytest
from typer.testing import CliRunner

from corestream.cli import app
from corestream.errors import RunError


def test_a_folder_without_runs_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=tmp_path.name):
        CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []
