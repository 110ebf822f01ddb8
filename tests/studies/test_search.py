"""The search for λ: which value did best, how it is shown, and that the presets have what the kept runs found."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corestream.learners.presets import BEST, CHOSEN_LAM, stream_kind
from corestream.studies.catalogue import LAMBDAS, STUDIES
from corestream.studies.config import make_config
from corestream.studies.plan import make_plan
from corestream.studies.results import Result, read_results
from corestream.studies.results_page import results_page
from corestream.studies.search import best_settings, found_on, means, settings_sections

KEPT = Path(__file__).parents[2] / "results"


def tried(lam: float, accuracy: float | None, *, imbalanced: bool) -> Result:
    config = make_config(
        "rotated-mnist",
        "gss",
        overrides={"lam": lam},
        seed=100,
        tasks=5,
        device="cuda",
        imbalanced=imbalanced,
    )
    if accuracy is None:
        return Result(config.to_dict(), {"average_accuracy": None, "matrix": []}, "diverged")
    return Result(config.to_dict(), {"average_accuracy": accuracy, "matrix": []})


def test_values_are_judged_by_their_mean_over_the_streams_and_not_where_they_diverged() -> None:
    assert means({0.1: [90.0, 80.0], 1.0: [89.0, 82.0], 5.0: [95.0, math.nan]}) == {0.1: 85.0, 1.0: 85.5}


def test_the_page_shows_every_value_and_the_one_in_use_in_bold() -> None:
    balanced = [tried(lam, 0.90 + lam / 1000, imbalanced=False) for lam in LAMBDAS]
    rare = [tried(lam, None if lam == 10 else 0.80 + lam / 1000, imbalanced=True) for lam in LAMBDAS]
    page = results_page([*balanced, *rare])
    first, second = [line for line in page.splitlines() if line.startswith("| gss |")]
    assert first == "| gss | balanced | 90.0 | 90.0 | 90.0 | 90.0 | 90.1 | **90.5** | 91.0 |"
    assert second == "| gss | imbalanced | 80.0 | 80.0 | 80.0 | 80.0 | 80.1 | **80.5** | diverged |"
    assert "`corestream paper lambda --benchmark rotated-mnist --device cuda`" in page
    assert "Other runs" not in page


def test_a_search_that_is_not_whole_chooses_nothing() -> None:
    study = STUDIES["lambda"]
    table = make_plan(study, [100]).table([tried(lam, 0.9, imbalanced=False) for lam in LAMBDAS])
    assert found_on(study, table, "rotated-mnist") == {}


@pytest.mark.parametrize("benchmark", CHOSEN_LAM)
def test_the_presets_have_what_the_kept_search_found(benchmark: str) -> None:
    """To a tenth of a point, by which a run that is made again differs."""
    study = STUDIES["lambda"]
    found = found_on(study, make_plan(study, [100]).table(read_results(KEPT)), benchmark)
    assert found
    for method, values in found.items():
        found_best = means(values)
        assert found_best[CHOSEN_LAM[benchmark][method]] > max(found_best.values()) - 0.1, method


SETTINGS = {name: study for name, study in STUDIES.items() if study.kind == "settings"}


def searched(accuracies: dict[tuple[str, bool], float], missing: str | None = None) -> list[Result]:
    """A run of each row on each stream of the search on Split CIFAR-100, these rows with these accuracies, others with 0.5."""
    plan = make_plan(STUDIES["best-split-cifar100"], [])
    runs = [(label, config) for (label, _), configs in plan.configs.items() for config in configs]
    return [
        Result(
            config.to_dict(),
            {"average_accuracy": accuracies.get((label, config.imbalanced), 0.5), "matrix": []},
        )
        for label, config in runs
        if label != missing or config.imbalanced
    ]


def test_each_kind_of_stream_has_the_settings_of_ocs_with_the_highest_mean_once_all_runs_are_there() -> None:
    study = STUDIES["best-split-cifar100"]
    accuracies = {
        ("τ=1 λ=0.05", False): 0.6,
        ("τ=1 λ=1", True): 0.7,
        ("uniform:ocs-schedule λ=0.1", True): 0.9,
    }
    table = make_plan(study, []).table(searched(accuracies))
    chosen = best_settings(study, table)
    assert chosen["balanced"].settings == {"tau": 1.0, "lam": 0.05}
    assert chosen["imbalanced"].settings == {"tau": 1.0, "lam": 1.0}
    lines = "\n".join(settings_sections(study, table))
    assert "| τ=1 λ=0.05 | **60.0 ± 0.0** | – | 3 | 50.0 ± 0.0 |" in lines
    assert "| τ=1 λ=1 | 50.0 ± 0.0 | – | 3 | **70.0 ± 0.0** |" in lines
    diverged = [
        replace(run, status="diverged") if run.config["settings"].get("tau") == 1000 else run
        for run in searched(accuracies)
    ]
    # it cannot win, and is not missing
    assert best_settings(study, make_plan(study, []).table(diverged)) == chosen
    unfinished = make_plan(study, []).table(searched(accuracies, missing="τ=1 λ=0.05"))
    assert best_settings(study, unfinished) == {"imbalanced": chosen["imbalanced"]}


def test_the_papers_settings_stay_where_others_are_ahead_by_less_than_their_spread() -> None:
    study = STUDIES["best-split-cifar100"]

    def chosen(accuracies: dict[int, float]) -> Any:
        runs = [
            replace(run, accuracy={**run.accuracy, "average_accuracy": accuracies[run.seed]})
            if run.config["settings"].items() >= {"tau": 1.0, "lam": 1.0, "reference": "memory"}.items()
            else run
            for run in searched({})
        ]
        return best_settings(study, make_plan(study, []).table(runs))["balanced"].label

    assert chosen({100: 0.51, 101: 0.52, 102: 0.53}) == "τ=1 λ=1"
    assert chosen({100: 0.49, 101: 0.51, 102: 0.56}) == "τ=1000 λ=1"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_presets_have_the_best_settings_that_the_kept_search_found(name: str) -> None:
    study = SETTINGS[name]
    benchmark = study.conditions[0].benchmark
    table = make_plan(study, []).table(read_results(KEPT))
    shipped = BEST["ocs"].get(benchmark, {})
    found = best_settings(study, table)  # a search that is not whole yet chooses nothing
    for kind in shipped.keys() - found.keys():  # but what is shipped is the best of the rows that are
        keys = [
            one.key
            for one in study.conditions
            if stream_kind(imbalanced=one.imbalanced, noisy=one.noise > 0) == kind
        ]
        cells = {row.label: [table.cells[row.label, key] for key in keys] for row in study.rows}
        whole = tuple(row for row in study.rows if all(c.done == c.expected for c in cells[row.label]))
        found[kind] = best_settings(replace(study, rows=whole), table)[kind]
    for kind, chosen in found.items():
        on: dict[str, Any] = {"imbalanced": kind == "imbalanced", "noise": 0.6 * (kind == "noisy")}
        best = make_config(benchmark, "ocs", overrides={**chosen.settings}, protocol="paper", **on)
        assert make_config(benchmark, "ocs", protocol="best", **on).settings == best.settings
