"""The appendix's hyperparameters beside those that the methods start from here."""

from typing import Any

from corestream.studies import paper_numbers
from corestream.studies.config import make_config
from corestream.studies.layout import Grid, Word

BENCHMARKS = ("rotated-mnist", "split-cifar100", "multi-datasets")
# the paper's name of a value → whose setting it is, and its name there
PARAMETERS = {
    "lr": ("uniform", "lr"),
    "lr_decay": ("uniform", "lr_decay"),
    "batch_size": ("uniform", "batch_size"),
    "ocs_batch_size": ("ocs", "batch_size"),
    "k": ("ocs", "k"),
    "tau": ("ocs", "tau"),
    "capacity": ("ocs", "capacity"),
}
OURS_ALONE = {"lam": ("ocs", "lam"), "momentum": ("ocs", "momentum"), "dropout": ("ocs", "dropout")}


def settings_records() -> list[dict[str, Any]]:
    """One record per benchmark and parameter: balanced, imbalanced and the paper's values."""
    records = []
    for benchmark in BENCHMARKS:
        paper = paper_numbers.hyperparameters(benchmark)
        for name, (method, setting) in {**PARAMETERS, **OURS_ALONE}.items():
            balanced, imbalanced = (
                make_config(benchmark, method, imbalanced=imbalanced, protocol="paper").settings[setting]
                for imbalanced in (False, True)
            )
            said = paper.get(name)
            values = said if isinstance(said, list) else [] if said is None else [said]
            records.append(
                {
                    "benchmark": benchmark,
                    "parameter": name,
                    "balanced": balanced,
                    "imbalanced": imbalanced,
                    "paper": values,
                    "same": None if said is None else {balanced, imbalanced} == set(values),
                }
            )
    return records


def settings_grid() -> Grid:
    rows = tuple(
        (
            Word(record["benchmark"]),
            Word(record["parameter"]),
            Word(_one_or_two(record["balanced"], record["imbalanced"])),
            Word(" / ".join(f"{value:g}" for value in record["paper"]) or "–"),
            Word({True: "same", False: "differs", None: ""}[record["same"]]),
        )
        for record in settings_records()
    )
    return Grid(
        "Hyperparameters: here (balanced / imbalanced) and in the paper's appendix",
        ("Benchmark", "Parameter", "here", "paper", ""),
        rows,
        ("docs/methods.md says where a value comes from, and why it differs.",),
    )


def _one_or_two(balanced: float, imbalanced: float) -> str:
    return f"{balanced:g}" if balanced == imbalanced else f"{balanced:g} / {imbalanced:g}"
