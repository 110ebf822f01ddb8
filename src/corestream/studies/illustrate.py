"""The figure of a study, from its table and, where pictures are shown, from what its runs kept."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from corestream.errors import RunError
from corestream.messages import counted
from corestream.studies.config import RunConfig
from corestream.studies.design import Kind
from corestream.studies.figures import curves, interpolation, kept_pictures, memory_sizes, tsne
from corestream.studies.kept import kept_pictures as pictures_of
from corestream.studies.kept import memory_of
from corestream.studies.run import make_stream
from corestream.studies.tables import Table

STREAM_SAMPLES = 2000  # shown behind the kept ones


def illustrate(kind: Kind, table: Table, *, data_dir: Path | None = None, offline: bool = False) -> Figure:
    """The study's figure; `kind` is not "table"."""
    if kind == "t-SNE":
        return _tsne(table, data_dir, offline)
    return DRAWN[kind](table)


def note_on(table: Table) -> str:
    """What must stand on a figure of this table: sampled files, tasks cut short, runs left out."""
    reasons = {cell.not_comparable for cell in table.cells.values() if cell.not_comparable}
    holes = sum(cell.expected - cell.done for cell in table.cells.values())
    return "; ".join(
        [*sorted(reasons), *([f"{counted(holes, 'run is', 'runs are')} not in it"] if holes else [])]
    )


def _kept(table: Table) -> Figure:
    found = {place: pictures_of(result) for place, cell in table.cells.items() if (result := cell.first_done)}
    shown = {place: pictures for place, pictures in found.items() if pictures is not None}
    return kept_pictures.draw(shown, table.rows, table.conditions)


def _tsne(table: Table, data_dir: Path | None, offline: bool) -> Figure:
    """What each method's first run keeps, over a draw of the same stream's samples."""
    runs = {row: result for row in table.rows if (result := table.cells[row, table.conditions[0]].first_done)}
    memories = {row: memory for row, result in runs.items() if (memory := memory_of(result))}
    if not memories:
        raise RunError("no run has kept a memory that could be drawn; see the table for what failed")
    config = RunConfig.from_dict(next(iter(runs.values())).config)
    stream = make_stream(config, data_dir=data_dir, offline=offline)
    kept = {row: (memory["inputs"], memory["targets"]) for row, memory in memories.items()}
    return tsne.draw(_draw_from(stream), kept, name=table.conditions[0], seed=config.seed)


def _draw_from(stream: Any) -> tuple[Tensor, Tensor]:
    """Equally many random samples of each task."""
    tasks = list(stream)
    share = -(-STREAM_SAMPLES // len(tasks))
    inputs, targets = [], []
    for task in tasks:
        x, y, *_ = next(iter(task.train.with_batch_size(min(share, task.train.num_samples))))
        inputs.append(x)
        targets.append(y)
    return torch.cat(inputs), torch.cat(targets)


DRAWN: Mapping[Kind, Callable[[Table], Figure]] = {
    "curves": curves.draw,
    "memory sizes": memory_sizes.draw,
    "interpolation": interpolation.draw,
    "kept pictures": _kept,
}
