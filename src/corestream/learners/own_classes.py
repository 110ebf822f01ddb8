"""A loss among the classes of a sample's own task, where one output layer has the classes of all tasks.

A network that learns a new task is then not taught that none of its samples is of an older task's classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import ConfigError
from ..gradients import cross_entropy


class OwnClasses:
    """Cross-entropy, one a sample, with the outputs of all other tasks' classes left out."""

    def __init__(self, tasks: Sequence[Sequence[int]], device: torch.device | str | None = None) -> None:
        known = [label for classes in tasks for label in classes]
        if len(tasks) < 2 or len(set(known)) < len(known):
            raise ConfigError(
                "loss_over is 'task'; that needs two or more tasks, with classes of their own, in one stream"
            )
        task_of = torch.full((max(known) + 1,), -1)
        for task, classes in enumerate(tasks):
            task_of[list(classes)] = task
        self._task_of = task_of.to(device)  # [classes]

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        own = self._task_of[targets.long().clamp(0, len(self._task_of) - 1)]
        return cross_entropy(outputs.masked_fill(self._task_of != own.unsqueeze(1), -torch.inf), targets)
