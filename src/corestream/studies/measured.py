"""The two figures that no table's runs feed: single samples' effect, and the distance of minibatch gradients."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from corestream.errors import DataError
from corestream.models import MLP, ResNet18
from corestream.studies.figures import minibatch_distance, single_samples
from corestream.studies.picture_sets import (
    DIGITS,
    FULL,
    PART,
    Course,
    Effort,
    Pictures,
    as_colour_32,
    dataset,
    digits,
    permuted,
)

Kind = TypeVar("Kind")
NOISE = "a batch's gradient has noise that a whole dataset's has not: by ℓ2 compare batches with the irrelevant batch"
LR = 0.05  # of the training before and of the single steps


@dataclass(frozen=True)
class Source:
    """Whose pictures, how many of them, and on which device."""

    benchmark: str | None = None
    device: str = "cpu"
    data_dir: Path | None = None
    offline: bool = False
    effort: Effort | None = None

    @property
    def size(self) -> Effort:
        return self.effort or (FULL if self.device == "cuda" else PART)

    def dataset(self, name: str) -> Pictures:
        return dataset(name, self.size, data_dir=self.data_dir, offline=self.offline)


@dataclass(frozen=True)
class Outcome:
    """A figure, the note on it, and the numbers behind it."""

    figure: Figure
    note: str
    numbers: list[dict[str, Any]]


@dataclass(frozen=True)
class Setting:
    """A network, its training, on what, and what has nothing to do with that."""

    network: Callable[[], nn.Module]
    course: Course
    pictures: Pictures
    irrelevant: Pictures


def figure3(source: Source, seed: int = 0) -> Outcome:
    """Single samples of a second task: MNIST then CIFAR-10, or Rotated Digits' first two tasks."""
    torch.manual_seed(seed)
    model, first, second = _or_digits(source, _mnist_then_cifar, lambda: _two_turns_of_digits(seed))
    model.to(source.device)
    epochs = 1 if len(first.train[1]) >= PART.train else 10
    batches = _batches(_task(first.train, 0, source.device), epochs)
    single_samples.train(model, batches, lr=LR)
    effects = single_samples.measure(
        model,
        _task(first.test, 0, source.device),
        _task(second.train, 1, source.device),
        _task(second.test, 1, source.device),
        count=source.size.samples,
        lr=LR,
    )
    note = "; ".join(part for part in (first.note, second.note, f"{len(effects)} single samples") if part)
    effects = [replace(effect, label=effect.label % 10) for effect in effects]  # classes of their own dataset
    return Outcome(single_samples.draw(effects), note, [asdict(effect) for effect in effects])


def distances(source: Source, seeds: Sequence[int]) -> Outcome:
    """Batches against the whole: MLP on MNIST and ResNet-18 on CIFAR-10, or MLP on Rotated Digits."""
    settings = _or_digits(source, _mnist_and_cifar, lambda: _digits_alone(source))
    measured: dict[str, list[minibatch_distance.Distance]] = {}
    for title, setting in settings.items():
        found = measured[title] = []
        for seed in seeds:
            torch.manual_seed(seed)
            found += minibatch_distance.measure(
                setting.network().to(source.device),
                _to(setting.pictures.train, source.device),
                _to(setting.irrelevant.train, source.device),
                steps=setting.course.steps,
                looks=setting.course.looks,
                lr=LR,
                generator=torch.Generator().manual_seed(seed),
            )
    notes = dict.fromkeys(p.note for s in settings.values() for p in (s.pictures, s.irrelevant))
    numbers = [
        {"setting": title, **asdict(distance)} for title, found in measured.items() for distance in found
    ]
    note = "; ".join([*filter(None, notes), NOISE])
    return Outcome(minibatch_distance.draw(measured), note, numbers)


def _or_digits(source: Source, published: Callable[[Source], Kind], embedded: Callable[[], Kind]) -> Kind:
    """The published datasets, or the embedded digits where they are asked for or nothing else is at hand."""
    if source.benchmark == DIGITS:
        return embedded()
    try:
        return published(source)
    except DataError:
        if not source.offline:
            raise
        return embedded()


def _mnist_then_cifar(source: Source) -> tuple[nn.Module, Pictures, Pictures]:
    # BatchNorm over one picture leaves nothing of it after the mean over its positions
    model = ResNet18(num_classes=20, heads=[range(10), range(10, 20)], norm="group")
    cifar = source.dataset("cifar10")
    shifted = replace(cifar, train=_shifted(cifar.train), test=_shifted(cifar.test))
    return model, source.dataset("mnist").map(as_colour_32), shifted


def _two_turns_of_digits(seed: int) -> tuple[nn.Module, Pictures, Pictures]:
    first, second = digits(0, seed), digits(1, seed)
    return MLP(first.train[0].shape[1:], 10), first, second


def _mnist_and_cifar(source: Source) -> dict[str, Setting]:
    mnist, cifar = source.dataset("mnist"), source.dataset("cifar10")
    other, size = mnist.map(permuted), source.size
    few = _half(other).map(as_colour_32)  # a ResNet's gradient takes its time
    return {
        "MLP on MNIST": Setting(lambda: MLP((1, 28, 28), 10), size.mlp, mnist, other),
        "ResNet-18 on CIFAR-10": Setting(lambda: ResNet18(num_classes=10), size.resnet, cifar, few),
    }


def _digits_alone(source: Source) -> dict[str, Setting]:
    own = digits(0, seed=0)
    network = partial(MLP, own.train[0].shape[1:], 10)
    return {"MLP on Rotated Digits": Setting(network, source.size.mlp, own, own.map(permuted))}


def _half(pictures: Pictures) -> Pictures:
    images, labels = pictures.train
    count = len(labels) // 2
    note = f"irrelevant to the ResNet: {count:,} images of permuted MNIST"
    return replace(pictures, train=(images[:count], labels[:count]), note=note)


def _shifted(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The second task's classes follow those of the first."""
    return part[0], part[1] + 10


def _task(part: tuple[Tensor, Tensor], task: int, device: str) -> tuple[Tensor, ...]:
    return (*_to(part, device), torch.full_like(part[1], task).to(device))


def _to(part: tuple[Tensor, Tensor], device: str) -> tuple[Tensor, Tensor]:
    return part[0].to(device), part[1].to(device)


def _batches(samples: tuple[Tensor, ...], epochs: int, size: int = 10) -> Iterator[tuple[Tensor, ...]]:
    for _ in range(epochs):
        order = torch.randperm(len(samples[1])).to(samples[1].device)
        for chosen in torch.split(order, size):
            yield tuple(part[chosen] for part in samples)
