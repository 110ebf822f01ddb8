from corestream.studies.settings_table import settings_grid, settings_records


def record(benchmark: str, parameter: str) -> dict[str, object]:
    found = [r for r in settings_records() if (r["benchmark"], r["parameter"]) == (benchmark, parameter)]
    return found[0]


def test_the_papers_values_are_the_ones_methods_start_from() -> None:
    for parameter in ("lr", "lr_decay", "batch_size", "ocs_batch_size", "k", "tau", "capacity"):
        assert record("rotated-mnist", parameter)["same"] is True


def test_a_difference_is_told() -> None:
    assert record("split-cifar100", "lr")["same"] is False  # the program multiplies 0.15 by 0.85
    words = [[word.text for word in row] for row in settings_grid().rows]
    assert ["split-cifar100", "lr", "0.1275", "0.15", "differs"] in words


def test_what_the_paper_does_not_say_has_no_verdict() -> None:
    assert record("rotated-mnist", "momentum") == {
        "benchmark": "rotated-mnist",
        "parameter": "momentum",
        "balanced": 0.8,
        "imbalanced": 0.8,
        "paper": [],
        "same": None,
    }
