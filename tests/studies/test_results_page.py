import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corestream.errors import CorestreamWarning
from corestream.studies.config import make_config
from corestream.studies.results import Result, write_result
from corestream.studies.results_page import results_page, write_results_page

ROOT = Path(__file__).parents[2]


def kept(method: str, seed: int, accuracy: float, **more: Any) -> Result:
    note = more.pop("files_note", "")
    given = {"benchmark": "rotated-mnist", "protocol": "paper", "device": "cuda", **more}
    config = make_config(method=method, seed=seed, **given)
    found = {"average_accuracy": accuracy, "forgetting": 0.08, "matrix": []}
    return Result(config.to_dict(), found, files_note=note, device="NVIDIA H200", seconds=42.0)


def test_a_row_has_ours_the_papers_the_verdict_the_command_the_device_and_the_time() -> None:
    page = results_page([kept("ocs", seed, 0.82 + seed / 500) for seed in range(5)])
    (line,) = [line for line in page.splitlines() if line.startswith("| ocs |") and "compare" in line][:1]
    for part in ("82.4 ± 0.3", "82.5 ± 0.32", "within", "NVIDIA H200", "42 s", "| 5 |"):
        assert part in line
    assert "`corestream compare rotated-mnist --methods ocs --seeds 5 --device cuda --protocol paper`" in line


def test_runs_on_two_devices_are_counted_and_timed_where_most_were_made() -> None:
    on_cpu = replace(kept("ocs", 0, 0.82, device="cpu"), device="cpu", seconds=900.0)
    page = results_page([on_cpu, *(kept("ocs", seed, 0.82) for seed in range(1, 5))])
    (line,) = [line for line in page.splitlines() if line.startswith("| ocs |") and "compare" in line][:1]
    assert "| 5 | NVIDIA H200 (4), cpu (1) | 42 s |" in line
    assert "--device cuda" in line


def test_the_papers_number_of_something_else_is_not_compared_with() -> None:
    page = results_page([kept("multitask", 0, 0.16, benchmark="split-cifar100", scenario="class")])
    (line,) = [line for line in page.splitlines() if line.startswith("| multitask |")]
    assert "| 16.0 | 71.0 ± 0.21 | not comparable |" in line
    assert "Not comparable with the paper: the paper's multitask is that of Table 1" in page


def test_a_row_of_a_study_with_seeds_of_its_own_has_that_studys_command() -> None:
    page = results_page([kept("ocs", seed, 0.82) for seed in (5, 6, 7)])
    (line,) = [line for line in page.splitlines() if "corestream paper table5" in line]
    assert line.startswith("| ocs | 0.0117 ")
    assert "`corestream paper table5 --methods ocs --device cuda`" in line


def test_holes_and_studies_without_runs() -> None:
    page = results_page([kept("ocs", 0, 0.82)])
    assert "1 (4 missing)" in page
    assert "## Table 1" in page
    assert "MC-SGD" not in page


def test_the_same_runs_serve_every_table_they_belong_to() -> None:
    page = results_page([kept("ocs", seed, 0.82) for seed in range(5)])
    assert page.count("| ocs | 82.0 ± 0.0 |") == 5  # tables 1, 2, 3, adaptation, uniform-ocs


def test_curves_are_drawn_and_notes_stand_below_their_headings(tmp_path: Path) -> None:
    matrix = [[0.9, None], [0.8, 0.9]]
    for seed in range(2):
        result = kept("ocs", seed, 0.85)
        write_result(replace(result, accuracy={**result.accuracy, "matrix": matrix}), tmp_path / "results")
    (tmp_path / "results" / "notes").mkdir()
    (tmp_path / "results" / "notes" / "table1.md").write_text("Why uniform is missing.\n")
    page = write_results_page(tmp_path / "results", tmp_path / "docs", seeds=2).read_text()
    heading, table = page.index("## Table 1"), page.index("### Table 1: rotated-mnist")
    assert heading < page.index("Why uniform is missing.") < table
    assert "![Accuracy over tasks](figures/figure4.png)" in page
    assert (tmp_path / "docs" / "figures" / "figure4.svg").exists()
    assert "figure5" not in page  # one size of the memory shows nothing of sizes


def test_both_streams_of_a_benchmark_stand_together_below_the_note_on_it() -> None:
    given = [{"benchmark": name, "imbalanced": rare} for rare in (False, True) for name in ("rotated-mnist", "split-cifar100")]  # fmt: skip
    page = results_page(
        [kept("ocs", 0, 0.6, **one) for one in given], notes={"table1-split-cifar100": "Of CIFAR.\n"}
    )
    places = [page.index(f"### Table 1: {key}\n") for key in
              ("rotated-mnist", "rotated-mnist --imbalanced", "split-cifar100", "split-cifar100 --imbalanced")]  # fmt: skip
    assert places == sorted(places)
    assert places[2] < page.index("Of CIFAR.") < places[3]
    assert page.count("Of CIFAR.") == 1


def test_the_page_begins_with_a_summary_and_counts_the_verdicts() -> None:
    page = results_page([*(kept("ocs", seed, 0.82) for seed in range(5)), kept("uniform", 0, 0.5)])
    assert "| OCS, the paper's settings | 82.0 (82.5) |  |  |" in page
    lines = [line for line in page.splitlines() if line.endswith("|") and "corestream" in line]
    found = Counter(cell.strip() for line in lines for cell in line.split("|"))
    within, miss = found["within"], found["miss"]
    assert within > 0 < miss
    text = f"Of the {within + miss + found['better']} numbers below that can be compared with the paper's, {within} are"
    assert text in page.replace("\n", " ")
    assert f"and {miss} miss." in page.replace("\n", " ")
    assert page.index("82.0 (82.5)") < page.index("## How to read this page") < page.index("## Table 1")


def test_notes_without_a_picture_are_told_and_figures_are_in_order(tmp_path: Path) -> None:
    write_result(kept("ocs", 0, 0.85), tmp_path / "results")
    notes = tmp_path / "results" / "notes"
    notes.mkdir()
    for name in ("figure3", "figure7", "table1"):
        (notes / f"{name}.md").write_text("Text.\n")
    with pytest.warns(CorestreamWarning, match=r"for the notes on figure3, figure7: the page"):
        write_results_page(tmp_path / "results", tmp_path / "docs")
    for name in ("figure3", "figure7"):
        (tmp_path / "docs" / "figures" / f"{name}.png").touch()
    page = write_results_page(tmp_path / "results", tmp_path / "docs").read_text()
    places = [page.index(f"### Figure {number}: ") for number in (3, 4, 7)]
    assert places == sorted(places)


def test_the_kept_page_is_what_the_command_writes_and_its_links_lead_to_its_headings(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "figures", tmp_path / "figures")
    page = write_results_page(ROOT / "results", tmp_path).read_text()
    assert page == (ROOT / "docs" / "RESULTS.md").read_text()
    headings = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", page, re.M)]  # fmt: skip
    assert len(set(headings)) == len(headings)
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= set(headings)


def test_a_sample_of_the_files_is_told() -> None:
    result = kept("ocs", 0, 0.6, benchmark="multi-datasets", files_note="svhn: a sample")
    page = results_page([result])
    assert "not comparable" in page
    assert "Not comparable with the paper: svhn: a sample." in page


def test_runs_that_no_table_has_stand_at_the_end_with_their_commands() -> None:
    tried = [kept("ocs", seed, 0.81, overrides={"tau": 7.0}) for seed in (0, 1)]
    other = [kept("ocs", seed, 0.80, overrides={"tau": 8.0}) for seed in (100, 101)]
    page = results_page([kept("ocs", 0, 0.82), *tried, *other])
    rest = page[page.index("## Other runs that are kept") :]
    first = "`corestream compare rotated-mnist --methods ocs --seeds 2 --device cuda --protocol paper --tau 7` | 81.0 ± 0.0 |"
    assert first in rest
    second = "`corestream run rotated-mnist --method ocs --seed 100 --device cuda --protocol paper --tau 8`, and with seed 101 | 80.0"
    assert second in rest
    assert "82.0" not in rest
