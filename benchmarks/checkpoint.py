"""What checkpoints cost: their share of a run's time on Rotated MNIST, and what they weigh.

    python benchmarks/checkpoint.py [--data-dir DIR] [--steps 3000] [--every 1000] [--out DIR] [--json FILE]

A real run of OCS with the paper's settings, its second task so that the memory is full: every checkpoint is the one a
run writes (tensors and JSON, both synced, the folder synced twice), on the disk of --out. The share is over whole
stretches of --every steps with one checkpoint each, and once more for the 120,000 steps and 20 task ends of the study.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from corestream.studies.config import make_config
from corestream.studies.drive import CHECKPOINT_STEPS
from corestream.studies.run import Run, make_run

STEPS, TASKS = 120_000, 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--every", type=int, default=CHECKPOINT_STEPS)
    parser.add_argument("--out", type=Path, help="a folder on the disk to be measured")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.out) as folder:
        found = measure(Path(folder), arguments.data_dir, arguments.steps, arguments.every)
    print(f"one step            {1e3 * found['step_seconds']:8.2f} ms")
    print(
        f"one checkpoint      {1e3 * found['checkpoint_seconds']:8.2f} ms (slowest {1e3 * found['slowest']:.2f})"
    )
    print(f"one checkpoint      {found['bytes'] / 1e6:8.2f} MB")
    print(f"share, measured     {100 * found['share']:8.2f} % of the time, one every {arguments.every} steps")
    print(
        f"share, whole study  {100 * found['study_share']:8.2f} % of 120,000 steps with 20 task ends; allowed are 2 %"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def measure(folder: Path, data_dir: Path | None, steps: int, every: int) -> dict[str, float]:
    run = make_run(make_config("rotated-mnist", "ocs", overrides={"sweeps": 1}), folder, data_dir=data_dir)
    while run.position.task == 0:
        run.step()
    stretches, saves = [], []
    for _ in range(max(1, steps // every)):
        stretches.append(_stretch(run, every))
        start = time.perf_counter()
        run.check()
        run.save()
        saves.append(time.perf_counter() - start)
    step, save = sum(stretches) / (every * len(stretches)), statistics.mean(saves)
    return {
        "step_seconds": step,
        "checkpoint_seconds": save,
        "slowest": max(saves),
        "bytes": sum(path.stat().st_size for path in (folder / "checkpoint").iterdir()) / 2,
        "share": sum(saves) / (sum(stretches) + sum(saves)),
        "study_share": (STEPS / every + TASKS) * save / (STEPS * step),
    }


def _stretch(run: Run, steps: int) -> float:
    """The time of so many batches; a task's end, which is no step, is left out."""
    spent = 0.0
    for _ in range(steps):
        start = time.perf_counter()
        closed = run.step()
        spent += 0.0 if closed else time.perf_counter() - start
    return spent


if __name__ == "__main__":
    main()
