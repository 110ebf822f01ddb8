"""Linear mode connectivity (Mirzadeh et al. 2021): a solution with low loss along two straight paths."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..gradients.calling import LossFn
from ..memory import Samples
from ..repeating import repeat
from .er_mir import at

Parameters = Mapping[str, Tensor]


def path_loss(
    model: torch.nn.Module, loss_fn: LossFn, start: Parameters, end: Parameters, samples: Samples, points: int
) -> Tensor:
    """The mean loss of the samples at α = 1/points, 2/points, …, 1 of the way from `start` to `end`."""
    losses = []
    for point in range(1, points + 1):
        share = point / points
        between = {name: start[name] + share * (end[name] - start[name]) for name in start}
        losses.append(loss_fn(at(model, between, samples.inputs), samples.targets).mean())
    return torch.stack(losses).mean()


@torch.enable_grad()
def connect(
    model: torch.nn.Module,
    loss_fn: LossFn,
    before: Parameters,
    after: Parameters,
    old: Samples,
    new: Samples,
    *,
    steps: int,
    points: int,
    lr: float,
    momentum: float = 0.8,
    batch: int = 10,
    generator: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """w = argmin Σ_α L_old(w̄ + α (w − w̄)) + L_new(ŵ + α (w − ŵ)), by SGD from the middle of w̄ and ŵ (Eq. 6).

    w̄ = `before` is the solution for the tasks so far and `old` what is remembered of them; ŵ = `after` is what the
    new task has made of it, and `new` samples of that task.
    """
    found = {name: ((before[name] + after[name]) / 2).requires_grad_() for name in before}
    optimizer = torch.optim.SGD(found.values(), lr=lr, momentum=momentum)

    def step() -> None:
        loss = path_loss(model, loss_fn, before, found, _some(old, batch, generator), points)
        loss = loss + path_loss(model, loss_fn, after, found, _some(new, batch, generator), points)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    repeat(step, steps, generator)
    return {name: value.detach() for name, value in found.items()}


def _some(samples: Samples, count: int, generator: torch.Generator | None) -> Samples:
    keys = torch.rand(len(samples), generator=generator, device=samples.targets.device)
    return samples[keys.topk(min(count, len(samples))).indices]
