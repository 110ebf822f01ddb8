"""What was searched: λ, of which a method has one for all streams of a benchmark, and OCS's best settings, one for each kind of stream."""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from corestream.learners.presets import StreamKind, stream_kind
from corestream.studies.config import make_config
from corestream.studies.design import Condition, Row, Study
from corestream.studies.formats import markdown_line
from corestream.studies.layout import plus_minus
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


def means(values: Values) -> dict[float, float]:
    """Over the streams, of each value with which no run diverged."""
    return {value: statistics.fmean(tried) for value, tried in values.items() if not math.isnan(sum(tried))}


def search_sections(study: Study, table: Table) -> Iterator[str]:
    """One table a benchmark: a method's accuracy on each stream by value, the one it is run with in bold."""
    for benchmark in dict.fromkeys(condition.benchmark for condition in study.conditions):
        found, streams = found_on(study, table, benchmark), _streams(study, benchmark)
        if not found:
            continue
        header = ["Method", "stream", *(f"λ = {lam:g}" for lam in next(iter(found.values())))]
        yield f"### {study.title.partition(',')[0]}: {benchmark}\n"
        yield markdown_line(header)
        yield markdown_line(["---"] * len(header))
        for method, values in found.items():
            chosen = make_config(benchmark, method, protocol="paper").settings["lam"]
            for number, stream in enumerate(streams):
                words = [_word(values[lam][number], lam == chosen) for lam in values]
                yield markdown_line([method, _stream(stream), *words])
        command = f"corestream paper {study.name} --benchmark {benchmark} --device cuda"
        yield f"\n`{command}` makes this table again.\n"


def best_settings(study: Study, table: Table) -> dict[StreamKind, Row]:
    """OCS's best row on each kind of stream, once every one has all its runs.

    What diverged cannot win; the paper's own gives way only to what is ahead by more than its standard deviation.
    """
    kinds = dict.fromkeys(map(_kind, study.conditions))
    return {kind: chosen for kind in kinds if (chosen := _best_on(study, table, kind)) is not None}


def _best_on(study: Study, table: Table, kind: StreamKind) -> Row | None:
    keys = [condition.key for condition in study.conditions if _kind(condition) == kind]
    found: list[tuple[float, float, Row]] = []  # mean, standard deviation
    for row in study.rows:
        cells = [table.cells[row.label, key] for key in keys]
        if row.method != "ocs" or any(cell.diverged for cell in cells):
            continue
        if any(cell.done < cell.expected for cell in cells):
            return None
        measured = [cell.measured["accuracy"] for cell in cells]
        mean, spread = (
            statistics.fmean(m.mean for m in measured),
            statistics.fmean(m.sd or 0 for m in measured),
        )
        found.append((mean, spread, row))
    if not found:
        return None
    mean, spread, best = max(found, key=lambda one: one[0])
    for paper_mean, _, row in found:
        if _is_papers(row, study.conditions[0].benchmark, kind) and mean - paper_mean <= spread:
            return row
    return best


def _is_papers(row: Row, benchmark: str, kind: StreamKind) -> bool:
    def settings(**given: Any) -> Mapping[str, Any]:
        imbalanced = kind == "imbalanced"
        return make_config(benchmark, row.method, protocol="paper", imbalanced=imbalanced, **given).settings

    return settings(overrides=dict(row.settings)) == settings()


def settings_sections(study: Study, table: Table) -> Iterator[str]:
    """A row for each setting: accuracy and forgetting on each stream; the chosen one in bold once all runs are there."""
    chosen = best_settings(study, table)
    header = ["Settings"]
    for condition in study.conditions:
        header += [f"{_stream(condition)}, %", "forgetting", "runs"]
    yield markdown_line(header)
    yield markdown_line(["---"] * len(header))
    for row in study.rows:
        words = [row.label]
        for condition in study.conditions:
            cell = table.cells[row.label, condition.key]
            accuracy, forgetting = (
                plus_minus(cell.measured.get(metric), metric) for metric in ("accuracy", "forgetting")
            )
            words += [
                f"**{accuracy}**" if chosen.get(_kind(condition)) is row else accuracy,
                forgetting,
                cell.runs,
            ]
        yield markdown_line(words)
    yield f"\n`corestream paper {study.name} --device cuda` makes this table again.\n"


def _kind(condition: Condition) -> StreamKind:
    return stream_kind(imbalanced=condition.imbalanced, noisy=bool(condition.noise or condition.label_noise))


def _stream(condition: Condition) -> str:
    if condition.noise:
        return f"{condition.noise:.0%} noise"
    return _kind(condition)


def _streams(study: Study, benchmark: str) -> list[Condition]:
    return [condition for condition in study.conditions if condition.benchmark == benchmark]


def _word(accuracy: float, chosen: bool) -> str:
    if math.isnan(accuracy):
        return "diverged"
    return f"**{accuracy:.1f}**" if chosen else f"{accuracy:.1f}"
