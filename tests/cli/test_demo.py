import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from corestream.cli import app

LITTLE = ["--seeds", "1", "--tasks", "1", "--jobs", "1"]


def corestream(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    done = corestream("demo", *LITTLE, "--out", str(folder))
    assert done.exit_code == 0, done.output
    assert "rotated-digits --noise 0.6 --tasks 1" in " ".join((folder / "demo.md").read_text().split())
    assert all(method in done.stdout for method in ("finetune", "uniform", "ocs"))
    return folder


def test_the_demo_writes_table_and_page(out: Path) -> None:
    assert "| ocs |" in (out / "demo.md").read_text()
    page = (out / "report.html").read_text()
    for word in ("rotated-digits --imbalanced", "noisy samples in the memory", "data:image/png"):
        assert word in page


def test_runs_that_are_there_are_reused_and_the_files_written_again(out: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/accuracy.json")}
    assert len(before) == 9
    (out / "report.html").unlink()
    (out / "demo.md").unlink()
    done = corestream("demo", *LITTLE, "--out", str(out), "--json")
    found = json.loads(done.stdout)
    assert len(found["cells"]) == 9
    assert all(cell["runs"] == 1 for cell in found["cells"])
    assert (out / "report.html").exists()
    assert (out / "demo.md").exists()
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("*/accuracy.json")}


def test_a_missing_run_is_made_and_a_page_can_be_asked_for(out: Path) -> None:
    done = corestream("report", str(out), "--title", "Mine & yours", "--json")
    found = json.loads(done.stdout)
    assert found["runs"] == 9
    assert "Mine &amp; yours" in Path(found["page"]).read_text()
