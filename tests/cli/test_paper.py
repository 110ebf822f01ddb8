import csv
import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from corestream.cli import app, paper
from corestream.cli.paper import ABOUT
from corestream.errors import ConfigError, RunError
from corestream.studies.catalogue import STUDIES
from corestream.studies.config import make_config
from corestream.studies.design import Condition, Study, row_named
from corestream.studies.drive import Options
from corestream.studies.plan import make_plan
from corestream.studies.results import Result, read_results, write_result

LITTLE = [
    "--benchmark",
    "rotated-digits",
    "--tasks",
    "1",
    "--seeds",
    "1",
    "--jobs",
    "1",
    "--device",
    "cpu",
    "--offline",
]


def corestream(*arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.stdout


def test_a_table_is_printed_and_written(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    text = corestream("paper", "table2", *LITTLE, "--methods", "finetune", *out)
    assert "finetune" in text
    assert "Table 2" in text
    written = list(csv.DictReader((tmp_path / "paper" / "table2.csv").open()))
    assert {line["condition"] for line in written} == {
        "rotated-digits",
        "rotated-digits --noise 0.4",
        "rotated-digits --noise 0.6",
    }
    assert (tmp_path / "paper" / "table2.md").exists()
    assert (tmp_path / "paper" / "table2.tex").exists()


def test_json_names_every_cell_and_results_are_kept_and_reused(tmp_path: Path) -> None:
    kept = tmp_path / "results"
    arguments = ["paper", "figure7", *LITTLE, "--methods", "uniform", "--json", "--results", str(kept)]
    first = json.loads(corestream(*arguments, "--out", str(tmp_path / "a")))
    assert {cell["condition"] for cell in first["cells"]} == {
        "rotated-digits --imbalanced",
        "rotated-digits --noise 0.6",
    }
    assert all(cell["runs"] == cell["expected"] == 1 for cell in first["cells"])
    assert all(cell["not_comparable"] == "only the first task" for cell in first["cells"])
    assert {Path(path).suffix for path in first["files"]} == {".md", ".csv", ".tex", ".png", ".svg"}
    assert len(read_results(kept)) == 2
    again = json.loads(
        corestream(
            "paper",
            "table2",
            *LITTLE,
            "--methods",
            "uniform",
            "--json",
            "--results",
            str(kept),
            "--out",
            str(tmp_path / "b"),
        )
    )
    noisy = [cell for cell in again["cells"] if cell["condition"].endswith("0.6")]
    assert noisy[0]["accuracy"]["mean"] == pytest.approx(
        next(cell for cell in first["cells"] if cell["condition"].endswith("0.6"))["accuracy"]["mean"]
    )
    assert noisy[0]["folders"] == []  # it came from the kept results, not from a run


DIGITS = Condition("rotated-digits", noise=0.6)
TWO = {
    "table2": Study("table2", "A table", (row_named("finetune"), row_named("uniform")), (DIGITS,)),
    "figure7": Study("figure7", "A figure", (row_named("uniform"),), (DIGITS,), kind="kept pictures"),
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The option that names the kept results of the one study, which are those of both."""
    monkeypatch.setattr("corestream.cli.paper.STUDIES", TWO)
    option = ["--results", str(tmp_path / "results")]
    corestream("paper", "table2", *LITTLE, "--out", str(tmp_path / "a"), *option)
    return option


def test_all_is_made_from_one_set_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corestream.cli.paper.STUDIES", TWO)
    kept = tmp_path / "results"
    arguments = ["paper", "all", *LITTLE, "--out", str(tmp_path), "--results", str(kept)]
    tables = json.loads(corestream(*arguments, "--json"))
    assert [table["name"] for table in tables] == ["table2", "figure7"]
    assert all(cell["runs"] == 1 for table in tables for cell in table["cells"])
    runs = [path.parent for path in tmp_path.glob("*/config.json")]
    assert len(runs) == len(read_results(kept)) == 2  # both show uniform's
    assert (tmp_path / "paper" / "figure7.png").exists()
    text = corestream(*arguments)
    assert "A table" in text
    assert "A figure" in text


def test_pictures_are_made_where_only_small_results_are_kept(kept: list[str], tmp_path: Path) -> None:
    figure = json.loads(
        corestream("paper", "figure7", *LITTLE, "--out", str(tmp_path / "b"), *kept, "--json")
    )
    assert all(cell["folders"] for cell in figure["cells"])  # the memory's pictures lie there
    assert len(read_results(tmp_path / "results")) == 2  # what is kept stays as it was kept


def test_a_picture_that_fails_takes_no_kept_result_away(
    kept: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(configs, out, **how):
        return [Result(config.to_dict(), {}, "failed", "no files") for config in configs]

    monkeypatch.setattr("corestream.cli.paper.make_missing", fails)
    monkeypatch.setattr("corestream.studies.illustrate.illustrate", lambda *_, **__: Figure())
    tables = json.loads(corestream("paper", "all", *LITTLE, "--out", str(tmp_path / "b"), *kept, "--json"))
    assert all(cell["runs"] == 1 for cell in tables[0]["cells"])


def test_all_on_a_benchmark_of_none_is_answered(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'rotated-digits'.*known are"):
        corestream("paper", "all", *LITTLE, "--out", str(tmp_path))
    with pytest.raises(ConfigError, match="--methods: each table"):
        corestream("paper", "all", "--methods", "ocs", "--out", str(tmp_path))


def test_the_ledger_needs_a_folder_of_results(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--results"):
        corestream("paper", "ledger", "--out", str(tmp_path))


def test_the_ledger_is_written_from_kept_results_alone(tmp_path: Path) -> None:
    config = make_config("rotated-mnist", "ocs").to_dict()
    write_result(
        Result(config, {"average_accuracy": 0.8, "forgetting": 0.1, "matrix": []}), tmp_path / "results"
    )
    corestream("paper", "ledger", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "docs"))
    assert (tmp_path / "docs" / "RESULTS.md").read_text().startswith("# Results")


def test_no_ledger_is_written_from_no_results(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    with pytest.raises(
        RunError, match=r"no result is kept in .*results; give the folder that --results named"
    ):
        corestream("paper", "ledger", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "docs"))
    assert not (tmp_path / "docs").exists()


def test_options_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="--methods, --tasks"):
        corestream("paper", "figure3", "--methods", "ocs", "--tasks", "3")


def test_every_study_can_be_asked_for() -> None:
    assert set(STUDIES) < set(ABOUT)
    help_text = " ".join(corestream("paper", "--help").replace("│", " ").split())
    assert "figure7 (kept pictures)" in help_text


def test_hyperparameters_run_nothing(tmp_path: Path) -> None:
    records = json.loads(corestream("paper", "hyperparameters", "--json", "--out", str(tmp_path)))
    assert {record["benchmark"] for record in records} == {
        "rotated-mnist",
        "split-cifar100",
        "multi-datasets",
    }
    assert (tmp_path / "paper" / "hyperparameters.md").exists()


@pytest.mark.parametrize("wrong", ["tabel1", "figure33", "nonsense"])
def test_a_wrong_name_is_answered(wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"{wrong!r}.*known are table1"):
        corestream("paper", wrong)


def test_a_wrong_method_or_benchmark_is_answered_before_anything_runs(tmp_path: Path) -> None:
    for arguments in (["--methods", "osc"], ["--benchmark", "rotated-minst"]):
        with pytest.raises(ConfigError, match=r"did you mean '(ocs|rotated-mnist)'"):
            corestream("paper", "table1", *arguments, "--out", str(tmp_path))
    with pytest.raises(ConfigError, match="names nothing"):
        corestream("paper", "table1", "--methods", "", "--out", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["figure3", "minibatch-distance"])
def test_a_measured_figure_refuses_a_benchmark_it_cannot_be_made_from(cli, name):
    answer = cli("paper", name, "--benchmark", "rotated-digist", "--offline")
    assert answer.status == 2
    assert "did you mean 'rotated-digits'" in answer.err
    assert cli("paper", name, "--benchmark", "rotated-mnist", "--offline").status == 2


def test_runs_whose_time_is_told_are_made_one_after_the_other(tmp_path, monkeypatch):
    asked = []

    def make(configs, out, *, jobs, options):
        asked.append(({config.seed for config in configs}, len(configs), jobs))
        return []

    monkeypatch.setattr(paper, "make_missing", make)
    plans = [make_plan(STUDIES[name], [0]) for name in ("table3", "table5")]
    paper._results(plans, tmp_path, None, 4, Options())
    assert asked == [({0}, 6, 4), ({5, 6, 7}, 12, 1)]


def test_such_a_table_takes_no_number_of_jobs(cli):
    answer = cli("paper", "table5", "--jobs", "2")
    assert answer.status == 2
    assert "takes no --jobs: its seeds are 5, 6, 7, and each run is timed alone" in answer.err


@pytest.mark.parametrize("name", ["table2", "ledger"])
def test_results_in_a_file_are_refused_before_anything_runs(tmp_path: Path, name: str) -> None:
    file = tmp_path / "kept.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match=r"kept\.json is no folder; --results names the folder"):
        corestream("paper", name, "--offline", "--results", str(file), "--out", str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == [file]


def test_the_files_of_no_run_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(paper, "write_atomically", full)
    with pytest.raises(OSError, match=r"hyperparameters\.md"):
        corestream("paper", "hyperparameters", "--out", str(tmp_path))
    with pytest.raises(OSError, match=r"figure3\.csv"):
        corestream(
            "paper", "figure3", "--benchmark", "rotated-digits", "--device", "cpu", "--out", str(tmp_path)
        )
    assert not list(tmp_path.rglob("*.csv"))
