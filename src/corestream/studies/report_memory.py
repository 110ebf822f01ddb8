"""What the report page shows of training and memory: noisy samples, classes, pictures."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from corestream.errors import RunError
from corestream.messages import counted
from corestream.plugins import VARIABLE
from corestream.studies.charts import bar, class_chart
from corestream.studies.config import RunConfig
from corestream.studies.kept import kept_pictures, picture_uri
from corestream.studies.results import Result
from corestream.studies.run import make_stream
from corestream.studies.tables import Cell

STROKES = "Strokes across them: its share in the stream."
NO_STROKES = (
    "Its share in the stream is not shown: the stream cannot be made again here. Its data must be at hand, and "
    f"{VARIABLE} must name the file of a benchmark of your own."
)


@dataclass(frozen=True)
class NoiseRow:
    name: str
    colour: int
    trained: str
    trained_bar: Markup
    kept: str
    kept_bar: Markup


@dataclass(frozen=True)
class Panel:
    """A picture or chart under a method's name."""

    name: str
    colour: int
    note: str
    chart: Markup | None = None
    uri: str | None = None


def noise_rows(cells: Mapping[str, Cell], colours: Mapping[str, int]) -> list[NoiseRow]:
    """How many noisy samples each method trained on and kept: the mean over its runs."""
    rows = []
    for row, cell in cells.items():
        done = [result for result in cell.results if result.status == "done"]
        if not done or not _noisy(done[0]):
            continue
        trained = [_trained_noise(result) for result in done]
        kept = [found for result in done if (found := _kept_noise(result)) is not None]
        rows.append(
            NoiseRow(
                row,
                colours[row],
                _count_and_share(trained),
                bar(_share(trained), colour=colours[row]),
                _count_and_share(kept) if kept else "keeps nothing" if _keeps_nothing(done) else "not known",
                bar(_share(kept), colour=colours[row]) if kept else Markup(""),
            )
        )
    return rows


def _noisy(result: Result) -> bool:
    return bool(result.config.get("noise") or result.config.get("label_noise"))


def noise_in_stream(cells: Mapping[str, Cell]) -> str:
    configs = [result.config for cell in cells.values() for result in cell.results[:1]]
    shares = configs[0] if configs else {}
    parts = []
    if shares.get("noise"):
        parts.append(f"{100 * shares['noise']:.0f} % of the training inputs are noise")
    if shares.get("label_noise"):
        parts.append(f"{100 * shares['label_noise']:.0f} % of the training labels are wrong")
    return " and ".join(parts)


def _trained_noise(result: Result) -> tuple[float, float]:
    """Noisy samples trained on, and all samples trained on, each counted as often as it was used."""
    tasks = result.accuracy.get("trained") or []
    return sum(task["samples"] * task["noise"] for task in tasks), sum(task["samples"] for task in tasks)


def _last_memory(result: Result) -> Mapping[str, Any] | None:
    kept = [memory for memory in result.accuracy.get("memory") or [] if memory]
    return kept[-1] if kept else None


def _kept_noise(result: Result) -> tuple[float, float] | None:
    memory = _last_memory(result)
    if memory is None or memory.get("noise") is None:
        return None
    return memory["samples"] * memory["noise"], memory["samples"]


def _keeps_nothing(results: Sequence[Result]) -> bool:
    return all(_last_memory(result) is None for result in results)


def _share(counts: Sequence[tuple[float, float]]) -> float:
    whole = sum(total for _, total in counts)
    return sum(part for part, _ in counts) / whole if whole else 0.0


def _count_and_share(counts: Sequence[tuple[float, float]]) -> str:
    part = statistics.fmean(part for part, _ in counts)
    whole = statistics.fmean(total for _, total in counts)
    return f"{part:,.0f} of {whole:,.0f} ({100 * _share(counts):.0f} %)"


@dataclass(frozen=True)
class Classes:
    """The shares of the classes in each method's memory, all on one scale, and what the strokes across them are."""

    panels: Sequence[Panel]
    strokes: str


def classes_kept(cells: Mapping[str, Cell], colours: Mapping[str, int], data_dir: Path | None) -> Classes:
    results = {row: result for row, cell in cells.items() if (result := cell.first_done) is not None}
    memories = {row: memory for row, result in results.items() if (memory := _last_memory(result))}
    kept = {row: shares for row, memory in memories.items() if (shares := _shares(memory.get("classes", {})))}
    if not kept:
        return Classes([], "")
    stream = _classes_in_stream(results[next(iter(kept))], data_dir)
    top = max(share for shares in (stream, *kept.values()) for share in shares.values())
    panels = []
    for row, shares in kept.items():
        chart = class_chart(shares, stream, top=top, colour=colours[row], label=f"classes kept by {row}")
        note = f"{counted(len(shares), 'class', 'classes')}, {counted(memories[row]['samples'], 'sample')}"
        panels.append(Panel(row, colours[row], note, chart))
    return Classes(panels, STROKES if stream else NO_STROKES)


def _classes_in_stream(result: Result, data_dir: Path | None) -> dict[str, float]:
    """Shares of the classes over all tasks; empty where the stream cannot be made again."""
    try:
        stream = make_stream(RunConfig.from_dict(result.config), data_dir=data_dir, offline=True)
        counts = sum((Counter(map(str, task.train.labels.tolist())) for task in stream), Counter[str]())
    except Exception:  # a benchmark of the user's own may raise anything
        return {}
    return _shares(counts)


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {str(name): count / total for name, count in counts.items()} if total else {}


def picture_panels(cells: Mapping[str, Cell], colours: Mapping[str, int]) -> list[Panel]:
    panels = []
    for row, cell in cells.items():
        result = cell.first_done
        try:
            pictures = kept_pictures(result) if result else None
        except RunError as error:  # the page is written all the same
            panels.append(Panel(row, colours[row], str(error)))
            continue
        if result is not None and pictures is not None:
            note = f"{min(36, len(pictures))} of {len(pictures)} kept, seed {result.seed}"
            panels.append(Panel(row, colours[row], note, uri=picture_uri(pictures)))
    return panels
