"""A stream that has no tasks, six of ten inputs noise, or four of ten labels wrong: what is picked, and what is learned.

python examples/without_tasks.py [SCALE]    # SCALE times as large as the digits' own values is the noise, 1 otherwise
"""

import sys
from statistics import mean

import corestream
import torch
from corestream.learners import Finetune
from torch import nn


def ocs(model, optimizer, **options):
    memory = corestream.ReplayMemory(capacity=100)
    return corestream.OCS(model, optimizer, memory, k=5, replay=5, tau=3.0, warm_start=5, **options)


LEARNERS = {
    "10 random samples of each batch": lambda *made: Finetune(*made, k=10),
    "OCS, no task has ended": ocs,
    "OCS, task_free=True": lambda *made: ocs(*made, task_free=True),
}


def learn(make, seed, scale=1.0, **bad):
    """The share of bad samples among the picks, and the accuracy on good ones, after ten sweeps."""
    task = corestream.benchmark("rotated-digits", tasks=1, seed=seed, **bad)[0]
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    learner = make(model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.8))
    is_noise, is_bad = task.train.is_noise, task.train.corrupted
    picks = []
    for _ in range(10):
        for x, y, index in task.train.with_indices():
            x = torch.where(is_noise[index].view(-1, 1, 1, 1), scale * x, x)
            step = learner.observe(x, y)
            picks.append(is_bad[index[step.picked[step.picked >= 0]]])
    x, y = task.test.tensors()
    return torch.cat(picks).float().mean().item(), (model(x).argmax(1) == y).float().mean().item()


def main(scale=1.0):
    for words, bad in {"60 % noise": {"noise": 0.6}, "40 % wrong labels": {"label_noise": 0.4}}.items():
        print(f"{words}, five seeds:")
        for name, make in LEARNERS.items():
            shares, accuracies = zip(*(learn(make, seed, scale, **bad) for seed in range(5)), strict=True)
            print(f"  {name}: {mean(shares):.0%} of the picks are bad, accuracy {mean(accuracies):.1%}")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
