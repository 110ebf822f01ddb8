"""S + V of samples among themselves (Eq. 6), by which some of them enter the memory and others give way."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..devices import widest
from ..draws import draw_again, random_state
from ..gradients import PerSampleGradients
from ..memory import ReplayMemory, Samples
from ..repeating import repeat
from ..selection.criteria import criteria_in_parts, gradient_criteria, gram_criteria
from ..selection.scores import weigh

PASS_SIZE = 250  # samples of one pass


def worth_among(samples: Samples, gradients: Callable[[Samples], PerSampleGradients]) -> Tensor:
    """S + V of each among all. Many are taken in parts, each of them passed through twice with the same random draws."""
    if len(samples) <= PASS_SIZE:
        return weigh(gradient_criteria(gradients(samples)), 0.0).total
    device = samples.targets.device
    state = random_state(device)

    def parts() -> Iterator[PerSampleGradients]:
        draw_again(device, state)
        for start in range(0, len(samples), PASS_SIZE):
            yield gradients(samples[start : start + PASS_SIZE])

    return weigh(criteria_in_parts(parts), 0.0).total


def worth_by_task(memory: ReplayMemory, grads: PerSampleGradients) -> Tensor:
    """S + V of each kept sample among those of its task, from the gradients of all in one pass."""
    table, finite = grads.gram().cpu(), grads.finite.cpu()
    worth = table.new_empty(len(memory))
    for rows in memory.places_by_task():
        worth[rows] = weigh(gram_criteria(table[rows][:, rows], finite[rows]), 0.0).total
    return worth


def worth_task_by_task(memory: ReplayMemory, among: Callable[[Samples], Tensor]) -> Tensor:
    """The same from a pass for each task. Tasks with equally many samples share one shape, so that a card can repeat their pass."""
    samples, sizes = memory.samples, dict[int, list[Tensor]]()
    for rows in memory.places_by_task():
        sizes.setdefault(len(rows), []).append(rows)
    device = samples.targets.device
    worth = torch.zeros(len(samples), dtype=widest(device), device=device)
    for alike in sizes.values():
        table, at = torch.stack(alike).to(device), torch.zeros(1, dtype=torch.long, device=device)

        def work(table: Tensor = table, at: Tensor = at) -> None:
            rows = table.index_select(0, at)[0]
            worth.index_copy_(0, rows, among(samples[rows]).to(worth.dtype))
            at.add_(1)

        if table.shape[1] <= PASS_SIZE:
            repeat(work, len(alike), wait=True)
        else:  # in parts, which cannot be captured: they set a generator back
            for _ in alike:
                work()
    return worth.cpu()
