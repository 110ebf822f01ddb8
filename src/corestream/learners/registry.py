"""Every method by its name: what it is, its settings, and how it is put together."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any, Literal, Protocol, get_args

import torch
from torch import nn

from ..errors import ConfigError
from ..memory import ReplayMemory
from ..messages import check_name
from .base import Learner
from .own_classes import OwnClasses
from .presets import preset, usual_protocol
from .settings import Settings

# Settings that describe the network, the optimiser, the data or the memory; the others are the learner's arguments.
NETWORK = {"network", "width", "form", "norm", "dropout"}
TRAINING = {"lr", "momentum", "batch_size", "sweeps", "test_batch_size", "loss_over", "enlarge"}
MEMORY = {"capacity", "policy", "replay_from"}
NOT_ARGUMENTS = NETWORK | TRAINING | MEMORY


Keeps = Literal["shares", "reservoir"]
Balance = Literal["class"]


@dataclass(frozen=True)
class Method:
    """`keeps` is how the memory is kept: a share per task, a reservoir, or not at all; `balance` whether each class has its share in it.
    `like` is the method whose schedule and λ it has on each benchmark."""

    name: str
    summary: str
    learner: type[Learner]
    settings: type[Settings]
    keeps: Keeps | None = None
    balance: Balance | None = None
    like: str | None = None


METHODS: dict[str, Method] = {}


class StreamClasses(Protocol):
    """What must be known of a stream to size a memory, and to tell a task's classes."""

    @property
    def num_tasks(self) -> int: ...
    def classes_of(self, task: int, /) -> tuple[int, ...]: ...


def register(method: Method) -> None:
    """Make a method known to `names`, `settings`, `build` and the command line; again, or in a re-imported
    version, it takes its own place."""
    if set(method.name) & set(":,"):
        raise ConfigError(
            f"the method's name is {method.name!r}; take one without ':' and ',', which --methods reads otherwise"
        )
    if method.like is not None:
        find(method.like)
    for name, allowed in (("keeps", get_args(Keeps)), ("balance", get_args(Balance))):
        if (given := getattr(method, name)) not in (None, *allowed):
            words = " or ".join(map(repr, (*allowed, None)))
            raise ConfigError(f"{name} of method {method.name!r} is {given!r}; allowed is {words}")
    known = METHODS.get(method.name)
    if known is not None and known != method and _origin(known) != _origin(method):
        raise ConfigError(f"there is a method {method.name!r} already; give this one another name")
    METHODS[method.name] = method


def _origin(method: Method) -> object:
    """Where its classes are written, by file, which may be imported under two names; corestream's own have no place of the user's."""
    kinds = (method.learner, method.settings)
    if all(kind.__module__.startswith("corestream.") for kind in kinds):
        return method
    modules = {kind: sys.modules.get(kind.__module__) for kind in kinds}
    return [
        (getattr(module, "__file__", kind.__module__), kind.__qualname__) for kind, module in modules.items()
    ]


def names() -> list[str]:
    """The methods' names."""
    return list(METHODS)


def describe(name: str) -> str:
    """The method in one line."""
    return find(name).summary


def find(name: str) -> Method:
    return METHODS[check_name("method", name, METHODS)]


def settings(
    method: str,
    benchmark: str,
    *,
    imbalanced: bool = False,
    noisy: bool = False,
    scenario: str | None = None,
    protocol: str | None = None,
) -> Settings:
    """A method's hyperparameters on a benchmark, the paper's or the best known; `dataclasses.replace` changes some of them."""
    found, protocol = find(method), protocol or default_protocol(method, benchmark)
    name = found.like or method
    return preset(
        found.settings,
        name,
        benchmark,
        imbalanced=imbalanced,
        noisy=noisy,
        scenario=scenario,
        protocol=protocol,
    )


def default_protocol(method: str, benchmark: str) -> str:
    """The protocol of a method where none is given, also of a method that is not registered here."""
    like = METHODS[method].like if method in METHODS else None
    return usual_protocol(like or method, benchmark)


def build(
    method: str,
    model: nn.Module,
    settings: Settings,
    *,
    stream: StreamClasses,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Learner:
    """The learner with its optimiser, memory and generator; a device moves the model there first."""
    found = find(method)
    if not isinstance(settings, found.settings):
        raise ConfigError(
            f"settings is a {type(settings).__name__}; {method} takes {found.settings.__name__}, "
            f"see learners.settings({method!r}, benchmark)"
        )
    if device is not None:
        model = model.to(device)
    device = next(model.parameters()).device
    arguments: dict[str, Any] = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if field.name not in NOT_ARGUMENTS
    }
    arguments["generator"] = torch.Generator(device).manual_seed(seed)
    if settings.loss_over == "task":
        arguments["loss_fn"] = _loss_over_own_classes(model, stream, device)
    fused = device.type == "cuda"  # one kernel for all parameters
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr, momentum=settings.momentum, fused=fused)
    memory = () if found.keeps is None else (_memory(found, settings, stream),)
    _check_arguments(found, (model, optimizer, *memory), arguments)
    return found.learner(model, optimizer, *memory, **arguments)


def _check_arguments(method: Method, given: Sequence[Any], named: Mapping[str, Any]) -> None:
    try:
        signature(method.learner).bind(*given, **named)
    except TypeError as error:
        takes = ["model", "optimizer", "memory"][: len(given)]
        name = getattr(method.learner, "__name__", "its learner")
        raise ConfigError(
            f"method {method.name!r}: {name} does not take what it is built with: {error}; it needs "
            f"__init__(self, {', '.join(takes)}, *, {', '.join(named)}), where **shared may stand for those that it hands on to "
            f"super().__init__; all but generator and loss_fn are fields of {method.settings.__name__}"
        ) from error


def _loss_over_own_classes(model: nn.Module, stream: StreamClasses, device: torch.device) -> OwnClasses:
    if getattr(model, "head_mask", None) is not None:
        raise ConfigError("loss_over is 'task'; a multi-head network decides among those alone: leave it out")
    return OwnClasses([stream.classes_of(task) for task in range(stream.num_tasks)], device)


def _memory(method: Method, settings: Settings, stream: StreamClasses) -> ReplayMemory:
    capacity: int = settings.capacity  # type: ignore[attr-defined]
    if method.keeps == "reservoir":
        return ReplayMemory(capacity, policy="reservoir", balance=None)
    policy: str = getattr(settings, "policy", "quota")
    _check_capacity(capacity, policy, stream)
    tasks = stream.num_tasks if policy == "fixed" else None
    # this policy implies a balance by class, whatever the method does elsewhere
    balance, classes = method.balance, None
    if policy == "per-class":
        balance, classes = "class", sum(_class_counts(stream))
    replay_from: str = getattr(settings, "replay_from", "memory")
    return ReplayMemory(
        capacity, policy=policy, balance=balance, tasks=tasks, classes=classes, replay_from=replay_from
    )


def _class_counts(stream: StreamClasses) -> list[int]:
    return [len(stream.classes_of(task)) for task in range(stream.num_tasks)]


def _check_capacity(capacity: int, policy: str, stream: StreamClasses) -> None:
    classes = _class_counts(stream)
    needed, why = max(classes), f"a task has {max(classes)} classes"
    if policy == "per-class":
        needed, why = sum(classes), f"the tasks have {sum(classes)} classes together"
    elif stream.num_tasks > needed:
        needed, why = stream.num_tasks, f"there are {stream.num_tasks} tasks"
    if capacity < needed:
        raise ConfigError(f"capacity is {capacity}; at least {needed} is needed, for {why}")
