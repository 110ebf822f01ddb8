"""Figure 3: what one step on one sample of a second task does to its class and to the first task."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from corestream.studies.figures.style import COLOURS, panels

Samples = tuple[Tensor, ...]  # inputs, targets, and task ids where the network has heads


@dataclass(frozen=True)
class Effect:
    """After one step on one sample: its class's accuracy and the first task's drop, in per cent."""

    label: int
    class_accuracy: float
    forgetting: float


def train(model: nn.Module, batches: Iterable[Samples], *, lr: float) -> None:
    """Plain SGD over the first task's batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for x, y, *task in batches:
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(x, *task), y))
        optimizer.step()


def measure(
    model: nn.Module,
    first_test: Samples,
    second_train: Samples,
    second_test: Samples,
    *,
    count: int,
    lr: float,
) -> list[Effect]:
    """One SGD step from the same weights on each of the first `count` samples of the second task."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    peak = _accuracy(model, first_test)
    effects = []
    for n in range(min(count, len(second_train[1]))):
        sample = tuple(part[n : n + 1] for part in second_train)
        _step(model, sample, lr)
        of_class = second_test[1] == sample[1]
        same_class = tuple(part[of_class] for part in second_test)
        forgetting = peak - _accuracy(model, first_test)
        effects.append(Effect(int(sample[1]), _accuracy(model, same_class), forgetting))
        model.load_state_dict(before)
    return effects


def draw(effects: Sequence[Effect]) -> Figure:
    """Per class of the second task: accuracy after the step, and the first task's drop; a dot a sample."""
    figure, (adaptation, forgotten) = panels(
        ["accuracy of the sample's class, %", "forgetting of the first task, percentage points"]
    )
    labels = sorted({effect.label for effect in effects})
    jitter = torch.rand(len(effects), generator=torch.Generator().manual_seed(0)) * 0.6 - 0.3
    for panel, values in (
        (adaptation, [effect.class_accuracy for effect in effects]),
        (forgotten, [effect.forgetting for effect in effects]),
    ):
        places = [
            labels.index(effect.label) + float(shift) for effect, shift in zip(effects, jitter, strict=True)
        ]
        panel.scatter(places, values, s=6, alpha=0.35, color=COLOURS[1], linewidths=0)
        for place, label in enumerate(labels):
            own = torch.tensor(
                [v for v, effect in zip(values, effects, strict=True) if effect.label == label]
            )
            deviation = float(own.std()) if len(own) > 1 else 0.0
            panel.errorbar(
                place, float(own.mean()), deviation, color=COLOURS[0], marker="o", markersize=4, capsize=3
            )
        panel.set_xticks(range(len(labels)), [str(label) for label in labels])
        panel.set_xlabel("class of the single sample", fontsize=8)
    return figure


def _step(model: nn.Module, sample: Samples, lr: float) -> None:
    x, y, *task = sample
    model.train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(cross_entropy(model(x, *task), y), parameters, allow_unused=True)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.sub_(lr * gradient)


@torch.no_grad()
def _accuracy(model: nn.Module, samples: Samples, batch: int = 512) -> float:
    model.eval()
    parts = zip(*(torch.split(part, batch) for part in samples), strict=True)
    correct = sum(int((model(x, *task).argmax(1) == y).sum()) for x, y, *task in parts)
    return 100 * correct / max(1, len(samples[1]))
