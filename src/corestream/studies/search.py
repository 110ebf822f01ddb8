"""A value searched for each method and benchmark: which did best, over all streams of the benchmark."""

import math
import statistics
from collections.abc import Iterator

from corestream.studies.design import Condition, Study
from corestream.studies.formats import markdown_line
from corestream.studies.tables import Table

Values = dict[float, list[float]]  # λ → accuracy on each stream; NaN where it diverged


def found_on(study: Study, table: Table, benchmark: str) -> dict[str, Values]:
    """For each method that was tried with every value on every stream of a benchmark, what it reached."""
    keys = [condition.key for condition in _streams(study, benchmark)]
    found: dict[str, Values] = {}
    for row in study.rows:
        cells = [table.cells[row.label, key] for key in keys]
        tried = [cell.measured["accuracy"].mean if cell.done else math.nan for cell in cells if cell.results]
        found.setdefault(row.method, {})[row.settings["lam"]] = tried
    return {
        method: values
        for method, values in found.items()
        if all(len(tried) == len(keys) for tried in values.values())
    }


def best(values: Values) -> float:
    """The value with the highest mean over the streams; the smaller of two equal ones."""
    whole = {value: statistics.fmean(tried) for value, tried in values.items() if not math.isnan(sum(tried))}
    return max(whole, key=lambda value: (whole[value], -value))


def search_sections(study: Study, table: Table) -> Iterator[str]:
    """One table a benchmark: a method's accuracy on each stream by value, the chosen one in bold."""
    for benchmark in dict.fromkeys(condition.benchmark for condition in study.conditions):
        found, streams = found_on(study, table, benchmark), _streams(study, benchmark)
        if not found:
            continue
        header = ["Method", "stream", *(f"λ = {lam:g}" for lam in next(iter(found.values())))]
        yield f"### {benchmark}\n"
        yield markdown_line(header)
        yield markdown_line(["---"] * len(header))
        for method, values in found.items():
            chosen = best(values)
            for number, stream in enumerate(streams):
                words = [_word(values[lam][number], lam == chosen) for lam in values]
                yield markdown_line([method, "imbalanced" if stream.imbalanced else "balanced", *words])
        command = f"corestream paper {study.name} --benchmark {benchmark} --device cuda"
        yield f"\n`{command}` makes this table again.\n"


def _streams(study: Study, benchmark: str) -> list[Condition]:
    return [condition for condition in study.conditions if condition.benchmark == benchmark]


def _word(accuracy: float, chosen: bool) -> str:
    if math.isnan(accuracy):
        return "diverged"
    return f"**{accuracy:.1f}**" if chosen else f"{accuracy:.1f}"
