"""What each method costs: seconds per 1,000 updates on the paper's MLP, beside the paper's running times.

    python benchmarks/methods.py [--methods ocs,gss] [--updates 100] [--rounds 3]

Random pictures of MNIST's size serve as data, with the settings of Rotated MNIST: every update is on 10 samples. The
memory is full (200 samples of five tasks) before anything is measured. Methods take turns, round by round, so that a
busy machine is unfair to none, and medians are shown. `end of task` is choosing a share of 33 samples, about the
mean over the 20 tasks; `whole` is a task of 6,000 updates with its end, relative to OCS.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from corestream import learners, models
from corestream.learners import Learner
from corestream.streams import from_tensors

PAPER = {"er-mir": 0.87, "gss": 3.89, "bilevel": 4.17, "ocs": 1.00}
UPDATES_PER_TASK = 6000


@dataclass
class Row:
    """A learner with a full memory, its data without end, and what was measured."""

    name: str
    learner: Learner
    batches: Iterator[tuple[Tensor, ...]]
    steps: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def learn(self, updates: int) -> float:
        start = time.perf_counter()
        for _ in range(updates):
            self.learner.observe(*next(self.batches))
        return time.perf_counter() - start

    def end(self) -> float:
        start = time.perf_counter()
        self.learner.end_task(itertools.islice(self.batches, 60))
        return time.perf_counter() - start


def prepare(name: str) -> Row:
    generator = torch.Generator().manual_seed(0)
    pictures, labels = torch.rand(6000, 1, 28, 28, generator=generator), torch.arange(6000) % 10
    stream = from_tensors(pictures, labels, split="time", num_tasks=6, scenario="domain")
    settings = learners.settings(name, "rotated-mnist", protocol="paper")
    model = models.for_stream(stream, settings, seed=0)
    learner = learners.build(name, model, settings, stream=stream)
    train = stream[0].train.with_batch_size(settings.batch_size)
    row = Row(name, learner, itertools.chain.from_iterable(itertools.repeat(train)))
    for _ in range(5):
        row.learn(20)
        row.end()
    return row


def table(rows: list[Row]) -> str:
    whole = {
        row.name: statistics.median(row.steps) / 1000 * UPDATES_PER_TASK + statistics.median(row.ends)
        for row in rows
    }
    lines = [
        "| method | s / 1,000 updates | end of task, s | whole, OCS = 1 | the paper |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        relative = f"{whole[row.name] / whole['ocs']:.2f}" if "ocs" in whole else ""
        paper = f"{PAPER[row.name]:.2f}" if row.name in PAPER else ""
        lines.append(
            f"| {row.name} | {statistics.median(row.steps):.2f} | {statistics.median(row.ends):.2f} "
            f"| {relative} | {paper} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--methods", default=",".join(learners.names()))
    parser.add_argument("--updates", type=int, default=100, help="updates of each method in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [prepare(name) for name in options.methods.split(",")]
    for _ in range(options.rounds):
        for row in rows:
            row.steps.append(row.learn(options.updates) / options.updates * 1000)
    for row in rows:
        row.ends.append(row.end())
    print(f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads")
    print(table(rows))


if __name__ == "__main__":
    main()
