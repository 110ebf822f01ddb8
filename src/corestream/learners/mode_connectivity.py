"""Linear mode connectivity (Mirzadeh et al. 2021): a solution with low loss along two straight paths."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..draws import random_places
from ..gradients.calling import LossFn, call_with
from ..gradients.restoring import in_mode
from ..memory import Samples
from ..repeating import repeat

Parameters = Mapping[str, Tensor]
Rows = list[Tensor]  # all parameters one after the other, those of each type and device in a row of their own
MOMENTUM = 0.8


def path_loss(
    model: nn.Module, loss_fn: LossFn, start: Rows, end: Rows, like: Parameters, samples: Samples, points: int
) -> Tensor:
    """The mean loss of the samples at α = 1/points, 2/points, …, 1 of the way from `start` to `end`.

    Both hold parameters like those of `like`, in rows: a point between is then three operations, whatever the network.
    """
    losses = []
    for point in range(1, points + 1):
        between = [a + point / points * (b - a) for a, b in zip(start, end, strict=True)]
        outputs = call_with(model, named(between, like), samples.inputs)
        losses.append(loss_fn(outputs, samples.targets).mean())
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
    batch: int = 10,
    generator: torch.Generator | None = None,
) -> None:
    """w = argmin Σ_α L_old(w̄ + α (w − w̄)) + L_new(ŵ + α (w − ŵ)), by SGD from the middle of w̄ and ŵ (Eq. 6).

    w̄ = `before` is the solution for the tasks so far and `old` what is remembered of them; ŵ is what the new task has made of it,
    the model's `parameters` as they are, and `new` samples of that task; parameters that are not given stay as they are. Those given
    become w, step by step: each step writes its result, for `repeat` may return before the last one has run. An error leaves them at ŵ.
    """
    solution, minimum = in_rows(before), in_rows(parameters)
    found = [((a + b) / 2).requires_grad_() for a, b in zip(solution, minimum, strict=True)]
    optimizer = torch.optim.SGD(found, lr=lr, momentum=MOMENTUM)

    def step() -> None:
        with in_mode(model, "eval"), dense_embeddings(model):
            loss = path_loss(
                model, loss_fn, solution, found, parameters, _some(old, batch, generator), points
            )
            loss = loss + path_loss(
                model, loss_fn, minimum, found, parameters, _some(new, batch, generator), points
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward(inputs=found)  # and no gradient for what stays as it is
        optimizer.step()
        _assign(parameters, found)

    try:
        repeat(step, steps, generator)
    except BaseException:
        _assign(parameters, minimum)
        raise


@contextmanager
def dense_embeddings(model: nn.Module) -> Iterator[None]:
    """Inside, embeddings give dense gradients: sparse ones do not go back to a row of all parameters."""
    sparse = [
        module
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    ]
    for module in sparse:
        module.sparse = False
    try:
        yield
    finally:
        for module in sparse:
            module.sparse = True


def in_rows(parameters: Parameters) -> Rows:
    """All parameters in rows."""
    return [
        torch.cat([parameters[name].detach().flatten() for name in names]) for names in _alike(parameters)
    ]


def named(rows: Rows, like: Parameters) -> dict[str, Tensor]:
    """The parameters that lie in rows, in the shapes of others."""
    found = {}
    for row, names in zip(rows, _alike(like), strict=True):
        parts = row.split([like[name].numel() for name in names])
        found.update({name: part.view(like[name].shape) for name, part in zip(names, parts, strict=True)})
    return found


def _alike(parameters: Parameters) -> list[list[str]]:
    """The names of each type's and device's parameters."""
    kinds: dict[tuple[torch.dtype, torch.device], list[str]] = {}
    for name, parameter in parameters.items():
        kinds.setdefault((parameter.dtype, parameter.device), []).append(name)
    return list(kinds.values())


@torch.no_grad()
def _assign(parameters: Parameters, rows: Rows) -> None:
    for name, value in named(rows, parameters).items():
        parameters[name].copy_(value)


def _some(samples: Samples, count: int, generator: torch.Generator | None) -> Samples:
    return samples[random_places(len(samples), count, generator, samples.targets.device)]
