from typing import Any

import pytest

from corestream.errors import RunError
from corestream.studies.paper_numbers import Number
from corestream.studies.results import Result
from corestream.studies.tables import Cell, Measured, make_cell

PAPER = {
    "accuracy": Number(80.0, 1.0, (0.05, 0.005)),
    "forgetting": Number(0.10, 0.01, (0.005, 0.005)),
}


def run(accuracy: float, seed: int = 0, forgetting: float = 0.1, **more: Any) -> Result:
    config = {"benchmark": "rotated-mnist", "method": "ocs", "seed": seed, "tasks": more.pop("tasks", None)}
    config |= more.pop("config", {})
    return Result(config, {"average_accuracy": accuracy / 100, "forgetting": forgetting}, **more)


def test_mean_and_sample_deviation_over_runs() -> None:
    cell = make_cell([run(80, 0), run(82, 1), run(84, 2)])
    assert cell.measured["accuracy"].mean == pytest.approx(82.0)
    assert cell.measured["accuracy"].sd == pytest.approx(2.0)
    assert make_cell([run(80)]).measured["accuracy"].sd is None


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        *[(80.0, "within"), (83.9, "within"), (76.1, "within"), (84.1, "better"), (75.9, "miss")],
        *[(84.05, "within rounding"), (75.95, "within rounding")],
    ],
)
def test_the_verdict_on_accuracy(accuracy: float, expected: str) -> None:
    cell = Cell({"accuracy": Measured(accuracy, 1.0, 5)}, PAPER)  # room: 2 (1 + 1) = 4
    assert cell.verdict("accuracy") == expected


@pytest.mark.parametrize(("forgetting", "expected"), [(0.119, "within"), (0.06, "better"), (0.14, "miss")])
def test_less_forgetting_is_better(forgetting: float, expected: str) -> None:
    assert Cell({"forgetting": Measured(forgetting, 0.0, 5)}, PAPER).verdict("forgetting") == expected


@pytest.mark.parametrize(
    ("forgetting", "expected"),
    [
        *[(0.135, "within"), (0.137, "within rounding"), (0.150, "within rounding"), (0.152, "miss")],
        *[(0.110, "within rounding"), (0.108, "better")],
    ],
)
def test_a_deviation_printed_as_zero_is_less_than_half_a_hundredth(forgetting: float, expected: str) -> None:
    cell = Cell(
        {"forgetting": Measured(forgetting, 0.003, 5)}, {"forgetting": Number(0.13, 0.0, (0.005, 0.005))}
    )
    assert cell.verdict("forgetting") == expected


def test_no_verdict_where_neither_more_nor_less_is_better() -> None:
    assert Cell({"usage": Measured(1.7, None, 5)}, {"usage": Number(1.6)}).verdict("usage") == ""


def test_no_verdict_without_a_number_on_both_sides() -> None:
    assert Cell({"accuracy": Measured(80, 1, 5)}).verdict("accuracy") == ""
    assert Cell({}, PAPER).verdict("accuracy") == ""


def test_a_stream_cut_short_is_not_comparable() -> None:
    cell = make_cell([run(80, tasks=3)], paper=PAPER)
    assert cell.verdict("accuracy") == "not comparable"
    assert "3 tasks" in cell.not_comparable


def test_sampled_files_are_not_comparable() -> None:
    cell = make_cell([run(80, files_note="SVHN is a sample")], paper=PAPER)
    assert cell.verdict("accuracy") == "not comparable"
    assert cell.not_comparable == "SVHN is a sample"


def test_diverged_failed_and_missing_runs_stay_out_of_the_mean_and_are_named() -> None:
    runs = [run(80, 0), run(10, 1, status="diverged"), run(0, 2, status="failed")]
    cell = make_cell(runs, expected=5)
    assert cell.measured["accuracy"] == Measured(80.0, None, 1)
    assert cell.holes == "1 diverged, 1 failed, 2 missing"


def test_a_run_of_sampled_files_is_not_averaged_with_one_of_the_whole_sets() -> None:
    with pytest.raises(RunError, match=r"different files.*no sample; SVHN is a sample"):
        make_cell([run(80, 0, files_note="SVHN is a sample"), run(81, 1)])


def test_runs_of_different_configurations_are_not_averaged() -> None:
    other = run(81, 1, config={"settings": {"tau": 1.0}})
    with pytest.raises(RunError, match=r"settings\.tau"):
        make_cell([run(80, 0, config={"settings": {"tau": 1000.0}}), other])
