from dataclasses import replace
from typing import Any

import pytest

from corestream.studies.config import make_config
from corestream.studies.grouping import condition_of, table_of
from corestream.studies.results import Result


def run(method: str, seed: int, accuracy: float = 0.5, **more: Any) -> Result:
    config = {"benchmark": "rotated-mnist", "method": method, "seed": seed, "device": "cpu", **more}
    return Result(config, {"average_accuracy": accuracy, "forgetting": 0.1, "matrix": []})


def test_seeds_of_one_configuration_share_a_cell() -> None:
    table = table_of([run("ocs", 0, 0.80), run("ocs", 1, 0.82), run("uniform", 0)], expected=2)
    assert table.rows == ("uniform", "ocs")
    assert table.cells["ocs", "rotated-mnist"].measured["accuracy"].mean == pytest.approx(81)
    assert table.cells["uniform", "rotated-mnist"].holes == "1 missing"


def test_rows_conditions_and_seeds_are_in_order_whatever_order_they_come_in() -> None:
    shuffled = [run("ocs", 1, noise=0.6), run("ocs", 0, noise=0.6), run("ocs", 0), run("finetune", 0)]
    table = table_of(shuffled)
    assert table.rows == ("finetune", "ocs")
    assert table.conditions == ("rotated-mnist", "rotated-mnist --noise 0.6")
    assert [result.seed for result in table.cells["ocs", "rotated-mnist --noise 0.6"].results] == [0, 1]


def test_conditions_are_in_the_order_of_the_demo() -> None:
    streams: list[dict[str, Any]] = [
        {"tasks": 2},
        {"label_noise": 0.2},
        {"noise": 0.6, "imbalanced": True},
        {"noise": 0.6},
        {"imbalanced": True},
        {},
    ]
    conditions = table_of([run("ocs", 0, **stream) for stream in streams]).conditions
    assert [condition.removeprefix("rotated-mnist").strip() for condition in conditions] == [
        "",
        "--imbalanced",
        "--noise 0.6",
        "--imbalanced --noise 0.6",
        "--label-noise 0.2",
        "--tasks 2",
    ]


def test_rows_are_sorted_by_method_and_by_the_values_of_their_settings() -> None:
    own = [{"tau": 100.0}, {"tau": 2.0}, {"fill": "herding"}, {}, {"tau": 10.0}]
    results = [run("ocs", 0, settings={"tau": 1000.0, "fill": "random"} | settings) for settings in own]
    results += [run("mine", 0), run("uniform", 0, noise=0.6)]
    table = table_of(results)
    assert table.rows == (
        "uniform",
        "ocs",
        "ocs (fill herding)",
        "ocs (tau 2)",
        "ocs (tau 10)",
        "ocs (tau 100)",
        "mine",
    )
    assert list(table.cells)[:2] == [("ocs", "rotated-mnist"), ("ocs (fill herding)", "rotated-mnist")]


def test_the_papers_number_stands_beside_its_condition() -> None:
    table = table_of([run("ocs", 0, noise=0.6), run("ocs", 0)])
    assert table.cells["ocs", "rotated-mnist --noise 0.6"].paper["accuracy"].mean == 80.3
    assert table.cells["ocs", "rotated-mnist"].paper["accuracy"].mean == 82.5


def test_a_number_of_something_else_is_shown_and_not_judged_by() -> None:
    config = make_config("split-cifar100", "multitask", scenario="class").to_dict()
    table = table_of([Result(config, {"average_accuracy": 0.16, "forgetting": None, "matrix": []})])
    cell = table.cells["multitask", "split-cifar100 --scenario class"]
    assert cell.paper["accuracy"].mean == 71.0
    assert cell.verdict("accuracy") == "not comparable"
    assert "a head for each task" in cell.not_comparable


def test_another_setting_gets_a_row_that_names_it_and_no_number_of_the_paper() -> None:
    table = table_of([run("ocs", 0, settings={"tau": 1.0}), run("ocs", 0, settings={"tau": 1000.0})])
    assert set(table.rows) == {"ocs (tau 1)", "ocs"}
    assert not table.cells["ocs (tau 1)", "rotated-mnist"].paper
    assert table.cells["ocs", "rotated-mnist"].paper["accuracy"].mean == 82.5


@pytest.mark.parametrize("settings", [{"capacity": 5000}, {"adapt": True}, {"lr": 0.05, "sweeps": 10}])
def test_settings_of_ones_own_have_no_number_of_the_paper_even_where_they_are_alone(settings) -> None:
    table = table_of([run("uniform", 0, settings=settings)])
    assert not table.has_paper_numbers
    assert table.rows != ("uniform",)


def test_a_row_means_the_same_under_every_condition() -> None:
    table = table_of([run("ocs", 0), run("ocs", 0, noise=0.6, settings={"tau": 1.0, "sweeps": 1})])
    assert table.rows == ("ocs", "ocs (sweeps 1, tau 1)")
    assert ("ocs", "rotated-mnist --noise 0.6") not in table.cells


def test_streams_of_different_length_have_columns_of_their_own() -> None:
    table = table_of([run("ocs", 0, tasks=2), run("ocs", 0, tasks=1), run("ocs", 0)])
    assert table.rows == ("ocs",)
    assert table.conditions == ("rotated-mnist", "rotated-mnist --tasks 1", "rotated-mnist --tasks 2")
    reasons = [table.cells["ocs", condition].not_comparable for condition in table.conditions]
    assert reasons == ["", "only the first task", "only the first 2 tasks"]
    papers = [table.cells["ocs", condition].paper["accuracy"].mean for condition in table.conditions]
    assert papers == [82.5, 82.5, 82.5]


def test_runs_of_sampled_files_have_rows_of_their_own() -> None:
    table = table_of([replace(run("ocs", 0), files_note="mnist: a sample"), run("ocs", 1)])
    assert table.rows == ("ocs (files mnist: a sample)", "ocs (files whole)")
    assert [cell.done for cell in table.cells.values()] == [1, 1]


def test_of_two_versions_of_ones_own_code_the_newest_has_the_plain_name() -> None:
    runs = [run("mine", seed, fingerprint=version) for seed in (0, 1) for version in ("ab", "cd")]
    made = {"ab": 3600.0, "cd": 60.0}
    dated = [replace(one, made=made[one.config["fingerprint"]] + one.seed) for one in runs]
    table = table_of(dated)
    assert set(table.rows) == {"mine", "mine (older version, run 1970-01-01 00:01:01 UTC)"}
    assert {one.config["fingerprint"] for one in table.cells["mine", "rotated-mnist"].results} == {"ab"}
    assert set(table_of(runs).rows) == {"mine (fingerprint ab)", "mine (fingerprint cd)"}  # when is not known


def test_settings_of_an_unknown_method_are_named_where_they_part_rows() -> None:
    table = table_of([run("mine", 0, settings={"a": 1, "b": 2}), run("mine", 0, settings={"a": 1, "b": 3})])
    assert set(table.rows) == {"mine (b 2)", "mine (b 3)"}
    table = table_of(
        [run("mine", 0, settings={"at_once": True}), run("mine", 0, settings={"at_once": False})]
    )
    assert set(table.rows) == {"mine (at once true)", "mine (at once false)"}


def test_another_protocol_is_named_after_the_method() -> None:
    runs = [
        run("uniform", 0, protocol="ocs-schedule", settings={"sweeps": 10}),
        run("uniform", 0, protocol="paper", settings={"sweeps": 1}),
    ]
    assert set(table_of(runs).rows) == {"uniform:ocs-schedule", "uniform"}


def test_the_same_settings_under_two_protocols_are_one_row() -> None:
    runs = [run("ocs", 0, protocol="best"), run("ocs", 1, protocol="paper")]
    (cell,) = table_of(runs).cells.values()
    assert cell.done == 2


def test_options_of_a_benchmark_belong_to_the_condition() -> None:
    config = {"benchmark": "folder:/x", "options": {"classes_per_task": 7}, "label_noise": 0.2}
    assert condition_of(config) == "folder:/x --label-noise 0.2 --classes-per-task 7"


def test_what_a_benchmark_does_by_itself_is_not_spelled_out() -> None:
    config = make_config("split-cifar100", "ocs").to_dict()
    assert condition_of(config) == "split-cifar100"
    config = make_config("split-cifar100", "ocs", scenario="class").to_dict()
    assert condition_of(config) == "split-cifar100 --scenario class"


def test_the_same_run_from_two_devices_counts_once() -> None:
    table = table_of([run("ocs", 0, device="cpu"), run("ocs", 0, device="cuda")])
    assert table.cells["ocs", "rotated-mnist"].done == 1


def test_settings_are_named_for_ones_own_pictures_too(tmp_path) -> None:
    benchmark = f"folder:{tmp_path}"
    table = table_of(
        [
            run("ocs", 0, benchmark=benchmark, settings={"lr": 0.5}, options={"image_size": 32}),
            run("ocs", 0, benchmark=benchmark, noise=0.3, options={"image_size": 32}),
        ]
    )
    assert set(table.rows) == {"ocs (lr 0.5)", "ocs"}


def test_equal_settings_under_another_name_count_under_the_papers() -> None:
    names = ("ocs-schedule", "paper")
    twice = [make_config("rotated-digits", "ocs", protocol=name).to_dict() for name in names]
    table = table_of(
        [Result(config, {"average_accuracy": 0.5, "forgetting": 0.1, "matrix": []}) for config in twice]
    )
    assert table.rows == ("ocs",)


def test_of_a_run_that_failed_in_one_folder_and_ended_in_another_the_ended_one_counts() -> None:
    failed, done = replace(run("ocs", 0), status="failed"), run("ocs", 0)
    for results in ([failed, done], [done, failed]):
        (cell,) = table_of(results).cells.values()
        assert [result.status for result in cell.results] == ["done"]
