import pytest

from corestream.errors import ConfigError
from corestream.studies import paper_numbers
from corestream.studies.catalogue import STUDIES, study
from corestream.studies.design import Condition


@pytest.mark.parametrize("name", [name for name in paper_numbers.names() if name != "hyperparameters"])
def test_every_number_of_the_paper_has_its_cell(name: str) -> None:
    cells = {(row.label, condition.key) for row, condition in STUDIES[name].cells()}
    for condition in paper_numbers.conditions(name):
        for row in paper_numbers.rows(name, condition):
            assert (row, condition) in cells


def test_a_condition_is_spelled_as_on_the_command_line() -> None:
    condition = Condition("split-cifar100", imbalanced=True, noise=0.6, label_noise=0.2, scenario="class")
    assert condition.key == "split-cifar100 --scenario class --imbalanced --noise 0.6 --label-noise 0.2"


def test_a_benchmark_of_the_study_selects_its_conditions() -> None:
    assert [c.key for c in study("table1").on("multi-datasets").conditions] == [
        "multi-datasets",
        "multi-datasets --imbalanced",
    ]


def test_another_benchmark_takes_the_studys_conditions_over() -> None:
    keys = [c.key for c in study("table2").on("rotated-digits").conditions]
    assert keys == ["rotated-digits", "rotated-digits --noise 0.4", "rotated-digits --noise 0.6"]


def test_a_scenario_that_the_other_benchmark_does_not_have_is_left_out() -> None:
    assert [c.key for c in study("class-incremental").on("rotated-digits").conditions] == [
        "rotated-digits",
        "rotated-digits --imbalanced",
    ]
    assert study("class-incremental").on("split-tinyimagenet").conditions[0].scenario == "class"


def test_methods_select_rows_and_may_add_one() -> None:
    rows = study("table2").with_methods(["ocs", "finetune"]).rows
    assert [row.label for row in rows] == ["ocs", "finetune"]
    assert len(study("table4").with_methods(["ocs"]).rows) == 7


def test_the_criteria_are_weights_of_s_v_and_a() -> None:
    weights = {row.label: row.settings["weights"] for row in study("table4").rows}
    assert weights["S+A"] == (1.0, 0.0, 1.0)
    assert weights["S+V+A"] == (1.0, 1.0, 1.0)


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="table1"):
        study("tabel1")
