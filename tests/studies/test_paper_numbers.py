import pytest

from corestream.studies import paper_numbers
from corestream.studies.paper_numbers import Number


def test_a_cell_has_the_papers_mean_and_deviation() -> None:
    assert paper_numbers.cell("table1", "rotated-mnist", "ocs") == {
        "accuracy": Number(82.5, 0.32),
        "forgetting": Number(0.08, 0.0),
    }


def test_a_number_knows_how_far_it_was_rounded() -> None:
    accuracy, forgetting = paper_numbers.cell("table1", "rotated-mnist", "stable-sgd").values()
    assert accuracy.rounding == pytest.approx((0.05, 0.005))  # 70.8 ± 0.78
    assert forgetting.rounding == pytest.approx((0.005, 0.005))  # 0.10 ± 0.02
    finer = [one for name in paper_numbers.conditions("partial-gradients")
             for row in paper_numbers.rows("partial-gradients", name)
             for one in paper_numbers.cell("partial-gradients", name, row).values()]  # fmt: skip
    assert min(one.rounding[0] for one in finer) == pytest.approx(0.00005)  # 0.0545


def test_what_the_paper_leaves_blank_is_absent() -> None:
    assert paper_numbers.cell("table1", "multi-datasets", "a-gem") == {}
    assert paper_numbers.cell("table1", "rotated-digits", "ocs") == {}
    assert set(paper_numbers.cell("table1", "rotated-mnist", "multitask")) == {"accuracy"}


def test_the_text_gives_two_more_criteria() -> None:
    assert paper_numbers.cell("table4", "multi-datasets", "S+A") == {"accuracy": Number(59.4, 2.0)}
    assert paper_numbers.cell("table4", "multi-datasets", "V+A") == {"accuracy": Number(56.4, 1.3)}


@pytest.mark.parametrize(
    ("table", "filled"),
    [
        *(("table1", 79), ("table2", 21), ("table3", 6), ("table4", 12), ("table5", 4), ("table6", 6)),
        *(("adaptation", 18), ("class-incremental", 16), ("uniform-ocs", 12), ("partial-gradients", 7)),
    ],
)
def test_every_cell_of_the_paper_is_there(table: str, filled: int) -> None:
    conditions = paper_numbers.conditions(table)
    assert sum(len(paper_numbers.rows(table, condition)) for condition in conditions) == filled


def test_numbers_are_in_range_and_tables_agree_with_each_other() -> None:
    for table in set(paper_numbers.names()) - {"hyperparameters"}:
        for condition in paper_numbers.conditions(table):
            for row in paper_numbers.rows(table, condition):
                cell = paper_numbers.cell(table, condition, row)
                if "accuracy" in cell:
                    assert 5 < cell["accuracy"].mean < 95
                if "forgetting" in cell:
                    assert 0 <= cell["forgetting"].mean < 0.6
    for row in paper_numbers.rows("table2", "rotated-mnist"):
        ours = paper_numbers.cell("table2", "rotated-mnist", row)
        assert ours == paper_numbers.cell("table1", "rotated-mnist", row)


def test_partial_gradients_use_the_paper_s_shares() -> None:
    assert paper_numbers.cell("partial-gradients", "split-tinyimagenet", "[1,2]")["usage"] == Number(6.3)


def test_hyperparameters_of_the_appendix() -> None:
    assert paper_numbers.hyperparameters("split-cifar100")["lr"] == 0.15
    assert paper_numbers.hyperparameters("rotated-digits") == {}
