"""The network that a benchmark and its settings ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from corestream.errors import ConfigError
from corestream.models.classifier import Classifier
from corestream.models.mlp import MLP
from corestream.models.resnet import Form, Norm, ResNet18

NETWORKS = ("mlp", "resnet18")


class StreamShape(Protocol):
    """What a network must know of a stream."""

    @property
    def scenario(self) -> str: ...
    @property
    def input_shape(self) -> Sequence[int]: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def num_tasks(self) -> int: ...
    def classes_of(self, task_index: int) -> Sequence[int]: ...


class NetworkSettings(Protocol):
    """The fields of a method's settings that describe its network."""

    @property
    def network(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def form(self) -> Form: ...
    @property
    def norm(self) -> Norm: ...


def for_stream(stream: StreamShape, settings: NetworkSettings, *, seed: int | None = None) -> Classifier:
    """An untrained network with the stream's input and classes, multi-head in the task scenario.

    With a `seed` its weights are that seed's, and the global random state stays as it was.
    """
    if seed is None:
        return _build(stream, settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _build(stream, settings)


def _build(stream: StreamShape, settings: NetworkSettings) -> Classifier:
    heads = None
    if stream.scenario == "task":
        heads = [stream.classes_of(task) for task in range(stream.num_tasks)]
    if settings.network == "mlp":
        return MLP(
            stream.input_shape,
            stream.num_classes,
            width=settings.width,
            dropout=settings.dropout,
            heads=heads,
        )
    if settings.network == "resnet18":
        return ResNet18(
            stream.input_shape,
            stream.num_classes,
            width=settings.width,
            dropout=settings.dropout,
            form=settings.form,
            norm=settings.norm,
            heads=heads,
        )
    raise ConfigError(f"network is {settings.network!r}; allowed are {', '.join(NETWORKS)}")
