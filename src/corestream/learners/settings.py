"""The hyperparameters of each method, as dataclasses that refuse values out of range."""

import math
import types
import typing
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from ..counts import is_count, is_finite
from ..errors import ConfigError


@dataclass(frozen=True)
class Range:
    """The numbers a field allows; `above` leaves the lower end out."""

    low: float
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        high_enough = self.low < value if self.above else self.low <= value
        return high_enough and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        start = f"above {self.low:g}" if self.above else f"from {self.low:g}"
        return start if self.high == math.inf else f"{start} to {self.high:g}"


Count = Annotated[int, Range(1)]
Positive = Annotated[float, Range(0, above=True)]
NotNegative = Annotated[float, Range(0)]


WIDTHS = {"mlp": 256, "resnet18": 20}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The network, and how it is trained. With `k`, each update is on k random samples of the batch.

    `loss_over` says among which classes the loss decides: all, or those of a sample's own task.
    """

    network: Literal["mlp", "resnet18"] = "mlp"
    width: Count = WIDTHS["mlp"]
    form: Literal["paper", "standard"] = "paper"
    norm: Literal["batch", "group"] = "batch"
    dropout: Annotated[float, Range(0, 0.99)] = 0.0
    lr: Positive = 0.01
    momentum: Annotated[float, Range(0, 0.9999)] = 0.8
    lr_decay: Annotated[float, Range(0, 1, above=True)] = 1.0
    batch_size: Count = 10
    sweeps: Count = 1
    k: Annotated[int | None, Range(1)] = None
    test_batch_size: Count = 256
    loss_over: Literal["all", "task"] = "all"

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self), include_extras=True)
        for field in fields(self):
            check(field.name, getattr(self, field.name), hints[field.name])


@dataclass(frozen=True, kw_only=True)
class StableSGDSettings(Settings):
    """`lr_floor` is where the decay of the learning rate ends."""

    lr_floor: NotNegative = 5e-5


@dataclass(frozen=True, kw_only=True)
class EWCSettings(Settings):
    """`penalty` weighs Σ F (θ − θ*)²/2 against the loss."""

    penalty: NotNegative = 30.0


@dataclass(frozen=True, kw_only=True)
class MemorySettings(Settings):
    """A memory of `capacity` samples, of which `replay` enter each update."""

    capacity: Count = 200
    replay: Count = 10


@dataclass(frozen=True, kw_only=True)
class SharedMemorySettings(MemorySettings):
    """A task's share of the memory, taken from `candidates` of its samples.

    `policy` says how large it is: "quota" is J/t after t tasks, "fixed" J/T, "per-class" J/C of each of C classes.
    """

    policy: Literal["quota", "fixed", "per-class"] = "quota"
    candidates: Count = 1000


@dataclass(frozen=True, kw_only=True)
class ReplayedSettings(SharedMemorySettings):
    """A replay batch comes from all tasks in the "memory", or from one "task" at a time."""

    replay_from: Literal["memory", "task"] = "memory"


@dataclass(frozen=True, kw_only=True)
class AdaptSettings(MemorySettings):
    """The replay loss has weight `lam`. `adapt` is current-task adaptation: the method also chooses the k samples of each batch to train
    on, and with True, not with "training", these alone may enter the memory. Where k is not given, the batches become `enlarge` times
    larger and are swept as often, so that k is the batch they had."""

    lam: NotNegative = 1.0
    adapt: bool | Literal["training"] = False
    enlarge: Count = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adapt and self.k is None:
            object.__setattr__(self, "k", self.batch_size)
            object.__setattr__(self, "batch_size", self.batch_size * self.enlarge)
            object.__setattr__(self, "sweeps", self.sweeps * self.enlarge)


@dataclass(frozen=True, kw_only=True)
class GSSSettings(AdaptSettings):
    """Each sample is compared with `compare` random ones of the memory."""

    compare: Count = 10


@dataclass(frozen=True, kw_only=True)
class MIRSettings(AdaptSettings):
    """The replay batch is chosen among `search` random samples of the memory."""

    search: Count = 50


@dataclass(frozen=True, kw_only=True)
class CoresetSettings(AdaptSettings, ReplayedSettings):
    """Replay with `lam`, a share of the memory per task, and adaptation."""


@dataclass(frozen=True, kw_only=True)
class RankingSettings(CoresetSettings):
    """Of an older task that must `shrink` goes what was chosen last, by its "order", or what a choice made "anew" leaves out."""

    shrink: Literal["order", "anew"] = "order"


@dataclass(frozen=True, kw_only=True)
class GradMatchingSettings(RankingSettings):
    """Matches the gradients of the whole model, or of its last layer only; as they are, or each of length 1."""

    last_layer: bool = False
    unit: bool = False


@dataclass(frozen=True, kw_only=True)
class BilevelSettings(RankingSettings):
    """The inner problem's kernel, its ridge λ, and whether its loss is a sum or a mean over what is picked."""

    kernel: Literal["ntk", "rbf"] = "ntk"
    ridge: Positive = 0.01
    inner: Literal["sum", "mean"] = "sum"


@dataclass(frozen=True, kw_only=True)
class VectorOCSSettings(ReplayedSettings):
    """The arguments of OCS that do not need gradients; `weights` are those of S, V and A."""

    k: Count = 10
    lam: NotNegative = 1.0
    tau: NotNegative = 1000.0
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    reference: Literal["memory", "replay"] | int = "memory"
    warm_start: Annotated[int, Range(0)] = 100
    fill: Literal["random", "score", "herding", "bilevel"] = "random"
    score_mode: Literal["train", "eval"] | None = None

    def __post_init__(self) -> None:
        if self.reference not in ("memory", "replay") and not is_count(self.reference):
            raise ConfigError(
                f"reference is {self.reference!r}; allowed are 'memory', 'replay' or a whole number from 1"
            )
        three = isinstance(self.weights, tuple | list) and len(self.weights) == 3
        if not three or not all(map(is_finite, self.weights)) or not any(self.weights):
            raise ConfigError(
                f"weights is {self.weights!r}; allowed are three finite numbers, for S, V and A, not all of them 0"
            )
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class UniformOCSSettings(VectorOCSSettings):
    """`parameters` restricts the gradients that selection looks at."""

    parameters: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class OCSSettings(UniformOCSSettings):
    """`single_pass` says whether selection and update share one pass."""

    single_pass: bool | Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class PathSettings:
    """After each task `path_steps` steps of rate `path_lr` look at `path_points` places of each path."""

    path_steps: Count = 200
    path_points: Count = 5
    path_lr: Positive = 0.01


@dataclass(frozen=True, kw_only=True)
class MCSGDSettings(PathSettings, SharedMemorySettings):
    """A random memory and the paths."""


@dataclass(frozen=True, kw_only=True)
class MCSGDOCSSettings(PathSettings, OCSSettings):
    """OCS's picks and memory with the paths."""


def check(name: str, value: Any, hint: Any) -> None:
    """A ConfigError unless the value is what the hint declares."""
    if typing.get_origin(hint) is Annotated:
        kind, allowed = typing.get_args(hint)
        if value is None and type(None) in typing.get_args(kind):
            return
        whole = kind is int or int in typing.get_args(kind)
        right_type = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not right_type or value not in allowed:
            numbers = "whole numbers" if whole else "numbers"
            raise ConfigError(f"{name} is {value!r}; allowed are {numbers} {allowed}")
    elif typing.get_origin(hint) is Literal and value not in typing.get_args(hint):
        choices = ", ".join(map(repr, typing.get_args(hint)))
        raise ConfigError(f"{name} is {value!r}; allowed are {choices}")
    elif hint is bool and not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}; allowed are True and False")
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        allowed = typing.get_args(hint)
        if not any(_fits(value, part) for part in allowed):
            raise ConfigError(f"{name} is {value!r}; allowed are {', '.join(map(_words, allowed))}")


def _fits(value: Any, part: Any) -> bool:
    """Whether it is what one part of a union allows."""
    origin, arguments = typing.get_origin(part), typing.get_args(part)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple | list) and all(isinstance(one, arguments[0]) for one in value)
    return isinstance(value, part)


def _words(part: Any) -> str:
    origin, arguments = typing.get_origin(part), typing.get_args(part)
    if origin is Literal:
        return ", ".join(map(repr, arguments))
    return {tuple: "a list of names", bool: "True, False", types.NoneType: "None"}.get(
        origin or part, str(part)
    )
