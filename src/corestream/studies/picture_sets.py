"""Whole datasets as tensors, for the figures that are measured without a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import pad

from corestream.streams import benchmark
from corestream.streams.datasets import load

DIGITS = "rotated-digits"


@dataclass(frozen=True)
class Pictures:
    """Training and test images in [0, 1] with their labels; `note` says where they are only a part."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    note: str = ""

    def map(self, change: Callable[[Tensor], Tensor]) -> Pictures:
        """The same pictures, their images changed."""
        return replace(
            self, train=(change(self.train[0]), self.train[1]), test=(change(self.test[0]), self.test[1])
        )


@dataclass(frozen=True)
class Course:
    """How many steps a network trains, and at how many of them it is looked at."""

    steps: int
    looks: int


@dataclass(frozen=True)
class Effort:
    """How much is measured: everything on a graphics card, a part of it on a processor."""

    train: int
    test: int
    samples: int
    mlp: Course
    resnet: Course


FULL = Effort(train=60_000, test=10_000, samples=1000, mlp=Course(1000, 11), resnet=Course(1000, 11))
PART = Effort(train=1_000, test=200, samples=100, mlp=Course(1000, 11), resnet=Course(200, 5))


def dataset(name: str, effort: Effort, *, data_dir: Path | None, offline: bool) -> Pictures:
    """The first images of a published dataset (they are in random order there)."""
    found = load(name, data_dir=data_dir, offline=offline)
    parts, cut = [], []
    for part, most in ((found.train, effort.train), (found.test, effort.test)):
        parts.append((part.images[:most].float() / 255, part.labels[:most]))
        cut.append(most < len(part))
    part_note = f"{name}: {effort.train:,} training and {effort.test:,} test images" if any(cut) else ""
    return Pictures(parts[0], parts[1], "; ".join(note for note in (found.note, part_note) if note))


def digits(task: int, seed: int) -> Pictures:
    """One task of Rotated Digits, which needs no file."""
    found = benchmark(DIGITS, seed=seed)[task]
    train, test = found.train.tensors(), found.test.tensors()
    return Pictures((train[0], train[1]), (test[0], test[1]), f"Rotated Digits, task {task + 1}")


def as_colour_32(images: Tensor) -> Tensor:
    """28 × 28 grey → 32 × 32 with three equal channels."""
    margin = (32 - images.shape[-1]) // 2
    return pad(images, (margin,) * 4).expand(-1, 3, -1, -1)


def permuted(images: Tensor) -> Tensor:
    """The pixels of every image in one fixed random order: a dataset that has nothing to do with the first."""
    order = torch.randperm(images[0].numel(), generator=torch.Generator().manual_seed(0))
    return images.flatten(1)[:, order].view_as(images)
