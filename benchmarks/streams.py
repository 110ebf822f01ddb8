"""Samples per second handed to the training loop: a Rotated MNIST task against a DataLoader that rotates item by item.

usage: python benchmarks/streams.py [--data-dir DIR] [--rounds 5] [--batch-sizes 10 100] [--json FILE]

Both hand out the same pixels (checked first). Rounds of the two are interleaved, so that a busy machine slows both; a
round of corestream is the first sweep of a fresh task, with its rotation and its shuffle, and then a second sweep.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import corestream
from corestream.streams.datasets import load

DEGREES = 27.0
TASK = 3
LOADER_SAMPLES = 6000  # of the 60,000: enough for a steady rate


class RotatedItems(Dataset[tuple[Tensor, int]]):
    """What one would write by hand: open, rotate, to float, one image at a time."""

    def __init__(self, images: np.ndarray, labels: list[int]) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        turned = Image.fromarray(self.images[index]).rotate(DEGREES)
        return torch.from_numpy(np.array(turned)).unsqueeze(0).float().div_(255), self.labels[index]


def rate(batches: object, expected: int) -> float:
    """Samples per second over one pass."""
    start, seen = time.perf_counter(), 0
    for x, _ in batches:  # type: ignore[attr-defined]
        seen += len(x)
    assert seen == expected
    return seen / (time.perf_counter() - start)


def measure(data_dir: Path | None, batch_size: int, rounds: int, workers: int) -> dict[str, float]:
    mnist = load("mnist", data_dir=data_dir)
    stream = corestream.benchmark("rotated-mnist", data_dir=data_dir)
    items = RotatedItems(
        mnist.train.images[:LOADER_SAMPLES, 0].numpy(), mnist.train.labels[:LOADER_SAMPLES].tolist()
    )
    loader = DataLoader(items, batch_size=batch_size, shuffle=True, num_workers=workers)
    assert torch.equal(torch.stack([items[i][0] for i in range(50)]), stream[TASK].train.tensors()[0][:50])
    first, later, by_item = [], [], []
    for _ in range(rounds):
        train = stream[TASK].train.with_batch_size(batch_size)
        first.append(rate(train, len(mnist.train)))
        by_item.append(rate(loader, len(items)))
        later.append(rate(train, len(mnist.train)))
    return {
        "batch_size": batch_size,
        "loader_workers": workers,
        "first_sweep": statistics.median(first),
        "later_sweeps": statistics.median(later),
        "data_loader": statistics.median(by_item),
        "times_faster_first": statistics.median(a / b for a, b in zip(first, by_item, strict=True)),
        "times_faster_later": statistics.median(a / b for a, b in zip(later, by_item, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="of the DataLoader")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    results = []
    print("batch  loader workers    DataLoader/s   first sweep/s         later sweeps/s")
    for batch_size in arguments.batch_sizes:
        for workers in arguments.workers:
            row = measure(arguments.data_dir, batch_size, arguments.rounds, workers)
            results.append(row)
            print(
                f"{batch_size:5d} {workers:15d} {row['data_loader']:15,.0f} {row['first_sweep']:15,.0f}"
                f" ({row['times_faster_first']:.0f} ×) {row['later_sweeps']:15,.0f} ({row['times_faster_later']:.0f} ×)"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
