from dataclasses import replace

import pytest

from corestream.errors import ConfigError
from corestream.studies.catalogue import STUDIES, study
from corestream.studies.config import RunConfig, make_config
from corestream.studies.plan import make_plan
from corestream.studies.results import Result


def result(config: RunConfig, accuracy: float = 0.8, seconds: float = 60.0) -> Result:
    found = {"average_accuracy": accuracy, "forgetting": 0.1, "matrix": []}
    return Result(config.to_dict(), found, seconds=seconds)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_of_the_catalogue_can_be_configured(name: str) -> None:
    plan = make_plan(study(name), seeds=[0])
    assert len(plan.configs) == len(study(name).rows) * len(study(name).conditions)


def test_results_come_to_their_cells_from_wherever_they_were_made() -> None:
    plan = make_plan(study("table2").with_methods(["ocs", "uniform"]), seeds=range(2))
    configs = plan.configs["ocs", "rotated-mnist --noise 0.6"]
    elsewhere = [result(replace(config, device="cuda"), 0.80 + config.seed / 100) for config in configs]
    table = plan.table(elsewhere)
    cell = table.cells["ocs", "rotated-mnist --noise 0.6"]
    assert cell.measured["accuracy"].mean == pytest.approx(80.5)
    assert cell.verdict("accuracy") == "within"
    assert table.cells["uniform", "rotated-mnist --noise 0.6"].holes == "2 missing"
    assert not table.whole


def test_a_result_with_another_setting_does_not_fit() -> None:
    plan = make_plan(study("table4").on("rotated-mnist"), seeds=[0])
    (config,) = plan.configs["S", "rotated-mnist --noise 0.6"]
    table = plan.table([result(config)])
    assert table.cells["S", "rotated-mnist --noise 0.6"].done == 1
    assert table.cells["S+V+A", "rotated-mnist --noise 0.6"].done == 0


def test_rows_that_share_a_run_make_it_once() -> None:
    plan = make_plan(study("table3").with_methods(["ocs"]), seeds=range(3))
    assert len(plan.all_configs()) == 6
    partial = make_plan(study("partial-gradients"), seeds=[0])
    assert len(partial.all_configs()) == 7 * 2  # benchmarks


def test_larger_memories_are_multiples_of_the_benchmarks_own() -> None:
    plan = make_plan(study("figure5").on("rotated-mnist"), seeds=[0])
    settings = [plan.configs[f"ocs J×{n}", "rotated-mnist"][0].settings for n in (1, 2, 10)]
    assert [one["capacity"] for one in settings] == [200, 400, 2000]
    assert [one["candidates"] for one in settings] == [
        1000,
        1000,
        2000,
    ]  # enough to fill it from the first task


@pytest.mark.parametrize(
    ("name", "methods", "refused"),
    [
        ("figure5", ["uniform", "finetune", "ewc"], "finetune, ewc"),
        ("figure6", ["ocs", "ocs:best"], "ocs:best"),
    ],
)
def test_rows_that_have_no_place_on_a_figures_axis_are_refused(name, methods, refused) -> None:
    with pytest.raises(ConfigError, match=f"{name} is drawn over .* no place: {refused}$"):
        make_plan(study(name).on("rotated-mnist").with_methods(methods), seeds=[0])


def test_time_is_told_relative_to_ocs() -> None:
    plan = make_plan(study("table5"), seeds=[0])
    results = [result(plan.configs["ocs", "rotated-mnist"][0], seconds=100)]
    results += [result(plan.configs["gss", "rotated-mnist"][0], seconds=390)]
    table = plan.table(results)
    assert table.cells["gss", "rotated-mnist"].measured["ratio"].mean == pytest.approx(3.9)
    assert "ratio" not in table.cells["bilevel", "rotated-mnist"].measured


def test_times_of_two_devices_are_not_mixed() -> None:
    plan = make_plan(replace(study("table5"), seeds=(5, 6)), seeds=())
    runs = {row: list(plan.configs[row, "rotated-mnist"]) for row in ("ocs", "gss", "bilevel")}
    made = [replace(result(config, seconds=100), device="a card") for config in runs["ocs"]]
    made += [replace(result(runs["gss"][0], seconds=300), device="a card")]
    made += [replace(result(runs["gss"][1], seconds=5000), device="cpu")]
    made += [replace(result(config, seconds=9000), device="cpu") for config in runs["bilevel"]]
    cells = plan.table(made).cells
    assert cells["gss", "rotated-mnist"].measured["ratio"].mean == pytest.approx(3)
    assert cells["gss", "rotated-mnist"].measured["hours"].mean == pytest.approx(300 / 3600)
    assert not {"hours", "ratio"} & set(cells["bilevel", "rotated-mnist"].measured)
    assert cells["ocs", "rotated-mnist"].verdict("hours") == ""  # another machine than the paper's
    failed = [replace(result(config), status="failed", device="") for config in runs["ocs"][1:]]
    cells = plan.table([made[0], *failed, *made[2:]]).cells
    assert cells["gss", "rotated-mnist"].measured["ratio"].mean == pytest.approx(3)


def test_a_larger_memory_brings_as_many_candidates_unless_they_are_said() -> None:
    def candidates(**overrides: int) -> int:
        return make_config("split-cifar100", "uniform", overrides=overrides).settings["candidates"]

    assert (candidates(capacity=400), candidates(capacity=100)) == (400, 250)
    assert candidates(capacity=400, candidates=30) == 30
    (config,) = make_plan(study("class-incremental"), [0]).configs["icarl", "split-cifar100 --scenario class"]
    assert (config.settings["capacity"], config.settings["candidates"]) == (1000, 1000)


def test_partial_gradients_tell_their_share() -> None:
    table = make_plan(study("partial-gradients"), seeds=[0]).table([])
    usage = {row: table.cells[row, "split-tinyimagenet"].measured["usage"].mean for row in table.rows}
    assert usage["[1,2,3,4]"] == 100
    assert usage["[1]"] + usage["[2,3,4]"] == pytest.approx(100)
    assert usage["[1]"] < usage["[1,2]"] < usage["[1,2,3]"] < 30
    assert 70 < usage["[4]"] < 80  # the paper: 75.0


def test_a_method_without_gradients_has_no_share_of_them() -> None:
    table = make_plan(study("partial-gradients").with_methods(["uniform", "[1]"]), seeds=[0]).table([])
    assert "usage" not in table.cells["uniform", "split-tinyimagenet"].measured
    assert "usage" in table.cells["[1]", "split-tinyimagenet"].measured


def test_blocks_of_a_network_that_has_none_are_refused_before_any_run() -> None:
    with pytest.raises(ConfigError, match="blocks of a ResNet-18, which rotated-digits is not"):
        make_plan(study("partial-gradients").on("rotated-digits"), seeds=[0])


def test_no_task_at_all_is_refused_and_not_taken_for_all() -> None:
    with pytest.raises(ConfigError, match="tasks is 0; at least 1 is needed"):
        make_plan(STUDIES["table1"], (0,), tasks=0)


def test_a_method_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ocs'"):
        make_plan(study("table2").with_methods(["osc"]), seeds=[0])


def test_a_study_moved_to_another_benchmark_leaves_the_best_settings_behind():
    labels = {row.label for row in STUDIES["table1"].rows}
    moved = STUDIES["table1"].on("rotated-digits")
    assert labels - {row.label for row in moved.rows} == {"ocs:best"}
    assert make_plan(moved, [0]).all_configs()
    assert {row.label for row in STUDIES["table1"].on("split-cifar100").rows} == labels
    with pytest.raises(ConfigError, match="ocs has no best settings on rotated-digits"):
        make_plan(moved.with_methods(["ocs:best"]), [0])
