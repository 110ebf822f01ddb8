"""What arrives: datasets, scenarios, imbalance and noise, put together as streams of tasks."""

from os import PathLike
from pathlib import Path
from typing import Any

from corestream.messages import check_name
from corestream.plugins import VARIABLE
from corestream.streams.batches import Batches
from corestream.streams.benchmarks import BENCHMARKS
from corestream.streams.benchmarks.registry import Benchmark
from corestream.streams.folder import FOLDER, PREFIX, from_folder
from corestream.streams.own import from_dataset, from_tensors
from corestream.streams.request import Request
from corestream.streams.stream import Stream, Task

__all__ = [
    "BENCHMARKS",
    "FOLDER",
    "Batches",
    "Stream",
    "Task",
    "benchmark",
    "from_dataset",
    "from_folder",
    "from_tensors",
    "names",
]


def names() -> list[str]:
    """The benchmarks' names."""
    return list(BENCHMARKS)


def benchmark(
    name: str,
    *,
    seed: int = 0,
    imbalanced: bool = False,
    noise: float = 0.0,
    label_noise: float = 0.0,
    scenario: str | None = None,
    tasks: int | None = None,
    data_dir: str | PathLike[str] | None = None,
    offline: bool = False,
    **options: Any,
) -> Stream:
    """The stream of a benchmark; `tasks` cuts it after so many, `options` are the benchmark's own.

    `folder:PATH` in place of a name is the user's own folder of images, see `from_folder`.
    """
    chosen = _find(name)
    request = Request(
        name=name,
        seed=seed,
        imbalanced=imbalanced,
        noise=noise,
        label_noise=label_noise,
        scenario=chosen.checked_scenario(scenario, options),
        tasks=tasks,
        data_dir=None if data_dir is None else Path(data_dir),
        offline=offline,
        options=chosen.checked_options(options),
    )
    chosen.refuse_idle(request.options, imbalanced=request.imbalanced, noise=request.noise)
    return chosen.build(request)


def _find(name: str) -> Benchmark:
    if name.startswith(PREFIX):
        return FOLDER
    hint = f"; or one of your own, once its file is imported, which {VARIABLE} names on the command line"
    return BENCHMARKS[check_name("benchmark", name, [*BENCHMARKS, FOLDER.name], hint=hint)]
