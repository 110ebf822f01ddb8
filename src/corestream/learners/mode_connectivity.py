"""Linear mode connectivity (Mirzadeh et al. 2021): a solution with low loss along two straight paths."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..gradients.calling import LossFn
from ..memory import Samples
from ..repeating import repeat
from .er_mir import at

Parameters = Mapping[str, Tensor]


def path_loss(
    model: nn.Module,
    loss_fn: LossFn,
    start: Tensor,
    end: Tensor,
    like: Parameters,
    samples: Samples,
    points: int,
) -> Tensor:
    """The mean loss of the samples at α = 1/points, 2/points, …, 1 of the way from `start` to `end`.

    Both are all parameters in one row, as those of `like`: a point between is then three operations, whatever the network.
    """
    losses = []
    for point in range(1, points + 1):
        between = named(start + point / points * (end - start), like)
        losses.append(loss_fn(at(model, between, samples.inputs), samples.targets).mean())
    return torch.stack(losses).mean()


@torch.enable_grad()
def connect(
    model: nn.Module,
    loss_fn: LossFn,
    parameters: Parameters,
    before: Parameters,
    old: Samples,
    new: Samples,
    *,
    steps: int,
    points: int,
    lr: float,
    momentum: float = 0.8,
    batch: int = 10,
    generator: torch.Generator | None = None,
) -> None:
    """w = argmin Σ_α L_old(w̄ + α (w − w̄)) + L_new(ŵ + α (w − ŵ)), by SGD from the middle of w̄ and ŵ (Eq. 6).

    w̄ = `before` is the solution for the tasks so far and `old` what is remembered of them; ŵ is what the new task has made of it,
    the model's `parameters` as they are, and `new` samples of that task. The parameters become w, step by step: nothing is left to
    be done after the last one, which may be still to come where somebody else repeats the steps.
    """
    solution, minimum = in_row(before), in_row(parameters)
    found = ((solution + minimum) / 2).requires_grad_()
    optimizer = torch.optim.SGD([found], lr=lr, momentum=momentum)

    def step() -> None:
        loss = path_loss(model, loss_fn, solution, found, parameters, _some(old, batch, generator), points)
        loss = loss + path_loss(
            model, loss_fn, minimum, found, parameters, _some(new, batch, generator), points
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for name, value in named(found, parameters).items():
                parameters[name].copy_(value)

    repeat(step, steps, generator)


def in_row(parameters: Parameters) -> Tensor:
    """All parameters one after the other."""
    return torch.cat([parameter.detach().flatten() for parameter in parameters.values()])


def named(row: Tensor, like: Parameters) -> dict[str, Tensor]:
    """The parameters that lie in a row, in the shapes of others."""
    parts = row.split([parameter.numel() for parameter in like.values()])
    return {name: part.view_as(like[name]) for name, part in zip(like, parts, strict=True)}


def _some(samples: Samples, count: int, generator: torch.Generator | None) -> Samples:
    keys = torch.rand(len(samples), generator=generator, device=samples.targets.device)
    return samples[keys.topk(min(count, len(samples))).indices]
