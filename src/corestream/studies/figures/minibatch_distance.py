"""Appendix: how far a minibatch's gradient is from that of the whole dataset, in ℓ2 distance and cosine.

A batch's gradient is long with sampling noise, a whole dataset's is not. So under ℓ2 the whole irrelevant dataset may
lie nearer than a small batch, in particular before training; an irrelevant batch is what a batch can be held against.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from corestream.studies.figures.style import COLOURS, legend_below, panels

SIZES = (10, 20, 50, 100)
IRRELEVANT = {"irrelevant dataset": "#888888", f"irrelevant batch of {SIZES[0]}": "#bbbbbb"}


@dataclass(frozen=True)
class Distance:
    """Between the gradient of one batch, or of irrelevant data, and that of the whole dataset."""

    step: int
    source: str
    l2: float
    cosine: float


def measure(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    irrelevant: tuple[Tensor, Tensor],
    *,
    steps: int,
    looks: int,
    lr: float,
    generator: torch.Generator,
    sizes: Sequence[int] = SIZES,
) -> list[Distance]:
    """SGD on batches of 10; at so many looks, first and last included, batches against the whole gradient of then."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    looked_at = {round(steps * look / (looks - 1)) for look in range(looks)}
    distances = []
    for step in range(steps + 1):
        if step in looked_at:
            whole = gradient(model, data)
            compared = {f"batch of {size}": _batch(data, size, generator) for size in sizes}
            compared |= zip(IRRELEVANT, (irrelevant, _batch(irrelevant, SIZES[0], generator)), strict=True)
            distances += [_distance(step, name, whole, gradient(model, of)) for name, of in compared.items()]
        inputs, targets = _batch(data, SIZES[0], generator)
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(inputs), targets))
        optimizer.step()
    return distances


def gradient(model: nn.Module, data: tuple[Tensor, Tensor], chunk: int = 1000) -> Tensor:
    """The mean gradient over a dataset as one vector, accumulated chunk by chunk."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    total = torch.zeros(sum(parameter.numel() for parameter in parameters), device=data[1].device)
    for x, y in zip(torch.split(data[0], chunk), torch.split(data[1], chunk), strict=True):
        loss = cross_entropy(model(x), y, reduction="sum")
        total += torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
    return total / len(data[1])


def draw(measured: Mapping[str, Sequence[Distance]]) -> Figure:
    """For each network two panels, ℓ2 and cosine over the steps: mean and deviation over the seeds."""
    titles = [f"{name}\n{word}" for name in measured for word in ("ℓ2 distance", "cosine similarity")]
    figure, axes = panels(titles)
    places = [(distances, word) for distances in measured.values() for word in ("l2", "cosine")]
    for panel, (distances, word) in zip(axes, places, strict=True):
        sources = list(dict.fromkeys(distance.source for distance in distances))
        for source in sources:
            colour = IRRELEVANT.get(source) or COLOURS[sources.index(source) % len(COLOURS)]
            own = [distance for distance in distances if distance.source == source]
            steps = sorted({distance.step for distance in own})
            at = [[getattr(d, word) for d in own if d.step == step] for step in steps]
            means = [statistics.fmean(values) for values in at]
            deviations = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in at]
            style = "--" if source in IRRELEVANT else "-"
            panel.plot(steps, means, style, color=colour, label=source, linewidth=1.3)
            low = [mean - sd for mean, sd in zip(means, deviations, strict=True)]
            high = [mean + sd for mean, sd in zip(means, deviations, strict=True)]
            panel.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.set_xlabel("training step", fontsize=8)
    legend_below(figure, axes[0])
    return figure


def _batch(data: tuple[Tensor, Tensor], size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    inputs, targets = data
    chosen = torch.randperm(len(targets), generator=generator)[:size].to(targets.device)
    return inputs[chosen], targets[chosen]


def _distance(step: int, source: str, whole: Tensor, other: Tensor) -> Distance:
    return Distance(
        step, source, float((whole - other).norm()), float(cosine_similarity(whole, other, dim=0))
    )
