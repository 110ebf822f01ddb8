from corestream.studies import paper_numbers
from corestream.studies.layout import grids, plus_minus
from corestream.studies.paper_numbers import Number
from corestream.studies.results import Result
from corestream.studies.tables import Cell, Measured, Table, make_cell


def test_a_mean_just_below_zero_is_zero() -> None:
    assert plus_minus(Measured(-0.001, 0.002, 3), "forgetting") == "0.00 ± 0.00"
    assert plus_minus(Measured(-0.01, None, 1), "forgetting") == "-0.01"


def test_other_metrics_than_accuracy_are_shown_without_the_paper_too() -> None:
    cell = Cell({"hours": Measured(0.5, None, 1)}, expected=1, done=1)
    table = Table("t", "T", ("ocs",), ("a",), ("hours", "ratio"), {("ocs", "a"): cell})
    (grid,) = grids(table)
    assert [word.text for word in grid.rows[0]] == ["ocs", "0.500", "–", "–", "–", "1/1"]


def test_a_condition_without_cells_has_no_grid() -> None:
    cell = Cell({"accuracy": Measured(80, 1, 2)}, {"accuracy": Number(81, 1)}, expected=2, done=2)
    table = Table("t", "T", ("ocs",), ("a", "b"), ("accuracy",), {("ocs", "a"): cell})
    assert [grid.title for grid in grids(table)] == ["T: a"]


def test_the_reason_stands_below_the_grid() -> None:
    cell = Cell(
        {"accuracy": Measured(80, 1, 2)}, {"accuracy": Number(81, 1)}, not_comparable="cut to 3 tasks"
    )
    table = Table("t", "T", ("ocs",), ("a",), ("accuracy",), {("ocs", "a"): cell})
    assert grids(table)[0].notes == ("Not comparable with the paper: cut to 3 tasks.",)


def test_short_times_have_three_digits_that_count() -> None:
    assert plus_minus(Measured(0.0006, None, 1), "hours") == "0.000600"
    assert plus_minus(Measured(0.03117, 0.0002, 3), "hours") == "0.0312 ± 0.0002"
    assert plus_minus(Measured(0.44, None, 1), "hours") == "0.440"
    assert plus_minus(Measured(0.0, None, 1), "hours") == "0.000"


def test_the_papers_numbers_are_shown_as_it_prints_them() -> None:
    er_mir = paper_numbers.cell("table1", "multi-datasets", "er-mir")
    assert (
        plus_minus(er_mir["accuracy"], "accuracy") == "56.9 ± 2.25"
    )  # in binary 2.25 would be rounded to 2.2
    assert plus_minus(paper_numbers.cell("table5", "rotated-mnist", "gss")["hours"], "hours") == "1.71"


def test_forgetting_just_below_zero_is_zero_in_a_matrix_too() -> None:
    cell = Cell(
        {"accuracy": Measured(80, None, 1), "forgetting": Measured(-0.001, None, 1)}, expected=1, done=1
    )
    table = Table("t", "T", ("ocs",), ("a",), ("accuracy", "forgetting"), {("ocs", "a"): cell})
    assert grids(table)[0].rows[0][1].text == "80.0, F 0.00"


def test_forgetting_after_a_single_task_is_no_number() -> None:
    config = {"benchmark": "rotated-digits", "method": "ocs", "seed": 0, "tasks": 1}
    cell = make_cell([Result(config, {"matrix": [[0.8]], "average_accuracy": 0.8, "forgetting": 0.0})])
    table = Table("t", "T", ("ocs",), ("a",), ("accuracy", "forgetting"), {("ocs", "a"): cell})
    assert grids(table)[0].rows[0][1].text == "80.0, F –"


def test_a_matrix_tells_how_many_runs_its_cells_have_where_they_differ() -> None:
    def cell(done: int, expected: int) -> Cell:
        return Cell({"accuracy": Measured(80, 1, done)}, expected=expected, done=done)

    cells = {("ocs", "a"): cell(3, 3), ("uniform", "a"): cell(1, 2)}
    table = Table("t", "T", ("ocs", "uniform"), ("a",), ("accuracy", "forgetting"), cells)
    shown = [row[1].text for row in grids(table)[0].rows]
    assert shown == ["80.0 ± 1.0, F – (3 runs)", "80.0 ± 1.0, F – (1 run, 1 missing)"]


def test_a_reason_of_some_columns_alone_names_them() -> None:
    measured = {"accuracy": Measured(80, 1, 2)}
    cells = {
        ("ocs", "a"): Cell(measured),
        ("ocs", "a --tasks 1"): Cell(measured, not_comparable="only the first task"),
    }
    table = Table("t", "T", ("ocs",), ("a", "a --tasks 1"), ("accuracy", "forgetting"), cells)
    assert grids(table)[0].notes == ("a --tasks 1: only the first task",)
    table = Table(
        "t", "T", ("ocs",), ("a --tasks 1",), ("accuracy", "forgetting"), dict([*cells.items()][1:])
    )
    assert grids(table)[0].notes == ("only the first task",)
