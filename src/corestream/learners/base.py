"""The contract every method follows: observe a batch, end a task, hold everything in one flat state."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..counts import is_finite
from ..errors import NonFiniteError
from ..gradients import cross_entropy
from ..gradients.calling import (
    Inputs,
    LossFn,
    call,
    check_losses,
    map_inputs,
    trainable,
    unwrap,
)
from ..memory import ReplayMemory, Reservoir, Samples
from ..memory.balance import check_targets
from . import saving
from .batches import Kind, checked_inputs, explain_task, in_order, kind_of, plain, require_same, versions_of
from .optimized import check_optimizer, optimized, warn_of_untrained
from .optimizer_state import deepcopied, made_by_constructor
from .step import Step


class Learner:
    """A model that learns from a stream. Methods differ in `_learn`; everything else is here.

    `observe` never waits for a CUDA device: shapes are fixed, what changes from step to step is a tensor, and trouble with values
    sets a flag that `check`, `end_task` and the returned loss raise. Its random choices come from `generator` alone, which lies on
    the model's device and is made from torch's own when none is given.
    """

    memory: ReplayMemory | None = None
    candidates: Reservoir | None = None  # what may enter it, or serves at a task's end
    follows_model = True  # whether layers may be frozen, thawed or replaced on the way
    # whether all that changes from step to step lies in tensors: then a card may replay a step
    capturable = True
    _known: list[tuple[nn.Parameter, bool]] | None = None  # the model's parameters, and whether each learns
    _gone: tuple[nn.Parameter, ...] = ()  # those that it had before and the optimiser still holds
    _told: frozenset[str] = frozenset()  # parameters that it does not hold, and that somebody was warned of
    _concluded = False  # whether the task's end has begun
    _kind: Kind | None = None  # of the batches so far
    _is_new = True  # neither a batch nor a state has come yet

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        loss_fn: LossFn | None = None,
        lr_decay: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        if not is_finite(lr_decay) or not 0 < lr_decay <= 1:
            raise ValueError(f"lr_decay must be a number in (0, 1], got {lr_decay!r}")
        if loss_fn is not None and not callable(loss_fn):
            raise ValueError(f"loss_fn must be a function of outputs and targets, got {loss_fn!r}")
        if isinstance(model, nn.parallel.DistributedDataParallel) and torch.distributed.get_world_size() > 1:
            raise ValueError(
                "a learner takes its own steps, which DistributedDataParallel would not average over its processes: give the model "
                "itself (model.module) and one process, or add up what `combine` gives in a loop of your own "
                '(docs/own-loop.md, "Several processes")'
            )
        self.model, self.optimizer = unwrap(model), optimizer
        check_optimizer(optimizer, trainable(self.model).values())
        self._first_state = made_by_constructor(optimizer)
        self._follow_model()
        self.device = next(iter(self.parameters.values())).device
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError(
                f"generator must be a torch.Generator, got {generator!r}: give torch.Generator().manual_seed(…)"
            )
        if generator is not None and generator.device.type != self.device.type:
            raise ValueError(f"generator is on {generator.device} and the model is on {self.device}")
        if generator is None:
            generator = torch.Generator(self.device)
            generator.manual_seed(int(torch.randint(2**62, ()).item()))
        self.loss_fn = cross_entropy if loss_fn is None else loss_fn
        self.lr_decay, self.generator = lr_decay, generator
        self.task = 0  # tasks ended so far
        self._spoiled = torch.zeros((), dtype=torch.bool, device=self.device)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A user's own step may count in plain numbers, which a captured step would not go on counting: a class that defines anything but
        `choose` is not captured unless it says `capturable = True` itself."""
        super().__init_subclass__(**kwargs)
        own = {name for name in vars(cls) if not name.startswith("__")} - {"choose"}
        if own and "capturable" not in own and not cls.__module__.startswith("corestream."):
            cls.capturable = False

    def __repr__(self) -> str:
        memory = "" if self.memory is None else f", {self.memory!r}"
        return f"{type(self).__name__}({type(self.model).__name__}, tasks ended: {self.task}{memory})"

    # The verbs

    def observe(self, x: Any, y: Tensor, task: Tensor | None = None, *, ids: Tensor | None = None) -> Step:
        """Learn from a batch. `task` goes to the model as its second argument; `ids` travel with samples that are kept."""
        inputs = checked_inputs(self.device, x, y, task, ids)
        # now, and not only when a task's share is stored
        if isinstance(self.memory, ReplayMemory) and self.memory.policy != "reservoir":
            check_targets(y, self.memory.balance)
        self._follow_model()
        self._follow_memory()
        self._concluded = False
        # what the batch was computed by is not this learner's to train, nor its memory's to keep
        inputs, y = map_inputs(plain, inputs), plain(y)
        before = self._kind_before()
        if before is not None:
            inputs = in_order(inputs, before)
        kind = kind_of(inputs, y)
        if before is not None:  # now, and not only when a sample is to be kept beside others
            require_same(kind, before)
        versions = versions_of(inputs)
        with torch.inference_mode(False), torch.enable_grad():
            try:
                step = self._learn(inputs, y, None if ids is None else ids.long())
            except TypeError as error:
                if task is not None:
                    explain_task(self.model, inputs, error)
                raise
        if not isinstance(step, Step):
            raise TypeError(
                f"{type(self).__name__}._learn must return a Step, got {type(step).__name__}: return Step(self, loss)"
            )
        if self._keeps_samples and versions_of(inputs) != versions:
            raise ValueError(
                "the model changes its inputs in place, and with them what is kept: let it change a copy (inplace=False, x.clone())"
            )
        self._kind = kind
        return step

    def start_sweep(self) -> None:
        """A new pass over the task's data begins."""

    def conclude(self) -> None:
        """The first part of `end_task`. It waits for the steps so far, but not for what it launches itself: who leads several learners
        can turn to the next one meanwhile."""
        if not self._concluded:
            self.check()
            with torch.inference_mode(False):
                self._conclude()
            self._concluded = True

    def end_task(self, data: Iterable[Any] | None = None) -> None:
        """The task is over; `data` are its batches once more, for methods that want another look. The optimiser begins anew, its rate
        `lr_decay` times what it was."""
        self.conclude()
        with torch.inference_mode(False):
            self._finish_task(data)
        self._concluded = False
        self.task += 1
        self.optimizer.state.clear()
        self.optimizer.state.update(deepcopied(self._first_state))
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * self.lr_decay

    def phase(self) -> Hashable:
        """What the shapes of a step depend on beside its batch: a step captured in one phase can be replayed in it alone."""
        self._follow_memory()
        return self.task, 0 if self.memory is None else len(self.memory)

    def check(self) -> None:
        """Raise what went wrong with values since the last look."""
        if bool(self._spoiled):
            self._spoiled.zero_()
            raise NonFiniteError(
                f"task {self.task}: a step's loss or gradient was not finite, or its batch had no sample with a finite loss and gradient: "
                "the model has diverged, or its inputs or targets are not finite or out of range"
            )

    def state_dict(self) -> dict[str, Tensor]:
        """Everything of this learner's, as one flat dict of tensors that later steps leave alone: model, what the loss has learned,
        optimiser, memory, counters, generator. What a model draws from torch's own generator, as dropout does, goes on alike only with
        that one's state restored too.
        """
        return saving.state_of(self)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """What is no state of such a learner is refused, and leaves it as it was."""
        saving.load_state(self, state)

    # What it does for them

    @property
    def _keeps_samples(self) -> bool:
        return self.memory is not None

    def _kind_before(self) -> Kind | None:
        """Of the samples beside which those of a batch may be kept."""
        if not self._keeps_samples:
            return None
        # a state, or a memory that another learner has filled, may have brought samples
        if self._kind is None and (kept := self._kept_so_far()) is not None:
            return kind_of(kept.inputs, kept.targets)
        return self._kind

    def _kept_so_far(self) -> Samples | None:
        """Samples beside which others are to be kept."""
        if isinstance(self.memory, ReplayMemory) and len(self.memory):
            return self.memory.samples
        return self.candidates.kept() if isinstance(self.candidates, Reservoir) else None

    def _follow_model(self) -> None:
        """Layers may be frozen and thawed, and a head may grow or be replaced, while the learner is at work."""
        now = [(parameter, parameter.requires_grad) for parameter in self.model.parameters()]
        if self._known is not None:
            same = [id(p) for p, _ in now] == [id(p) for p, _ in self._known]
            frozen_alike = [learns for _, learns in now] == [learns for _, learns in self._known]
            if same and (frozen_alike or not self.follows_model):
                return
            if not self.follows_model:
                raise ValueError(
                    f"{type(self).__name__} holds on to the parameters that it began with, and the model has others now: "
                    "make a new learner"
                )
        held = set(map(id, optimized(self.optimizer)))
        left = held - {id(p) for p, _ in now}
        self._gone = tuple(p for p in (*self._gone, *(p for p, _ in self._known or ())) if id(p) in left)
        self.parameters, self._known = trainable(self.model), now
        untrained = [name for name, p in self.parameters.items() if id(p) not in held]
        if not self._told.issuperset(untrained):
            self._told |= set(untrained)
            warn_of_untrained(untrained)

    def _follow_memory(self) -> None:
        """Samples that another learner left in the memory are of tasks before this learner's first."""
        if self._is_new and self.memory is not None and len(self.memory):
            self.task = max(self.task, int(self.memory.tasks.max()) + 1)
        self._is_new = False

    # What a method fills in

    def _learn(self, inputs: Inputs, targets: Tensor, ids: Tensor | None) -> Step:
        raise NotImplementedError(
            f"{type(self).__name__} needs a method _learn(self, inputs, targets, ids) that takes one step and returns a Step"
        )

    def _conclude(self) -> None:
        """Work on the parameters after a task's last step. It does not wait for what it launches on a card, and a `repeat` must be the
        last thing it does, for that may be launched later."""

    def _finish_task(self, data: Iterable[Any] | None) -> None:
        pass

    def _state(self) -> dict[str, Tensor]:
        return {}

    def _load_state(self, state: dict[str, Tensor]) -> None:
        pass

    # What methods share

    def _losses(self, inputs: Inputs, targets: Tensor) -> Tensor:
        """One loss a sample, from an ordinary forward pass."""
        return check_losses(self.loss_fn(call(self.model, inputs), targets), len(targets))

    def _step(self, gradients: Mapping[str, Tensor | None]) -> None:
        """One step of the optimiser along given gradients; parameters with None are left alone."""
        self.optimizer.zero_grad(set_to_none=True)  # what is frozen may have one from before
        for name, parameter in self.parameters.items():
            parameter.grad = gradients.get(name)
        self._apply_gradients()
        for parameter in self.parameters.values():
            parameter.grad = None

    def _descend(self, loss: Tensor, *, finite: bool = False) -> None:
        """One ordinary step down a loss; where its gradient must be `finite` that is looked at."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if finite:
            given = [p.grad for p in self.parameters.values() if p.grad is not None]
            self._spoil(~torch.stack([gradient.isfinite().all() for gradient in given]).all())
        self._apply_gradients()
        self.optimizer.zero_grad(set_to_none=True)

    def _apply_gradients(self) -> None:
        self.optimizer.step()
        torch.clear_autocast_cache()  # inside autocast the next pass would go with the weights from before

    def _spoil(self, condition: Tensor) -> None:
        """Raise when the condition holds: at once on CPU, at the next look on CUDA."""
        self._spoiled.logical_or_(condition)
        if not condition.is_cuda:
            self.check()


def check_memory(memory: object) -> None:
    if not isinstance(memory, ReplayMemory):
        raise TypeError(
            f"memory must be a ReplayMemory, got {type(memory).__name__}: give corestream.ReplayMemory(capacity=…)"
        )


def weighted_mean(losses: Tensor, valid: Tensor) -> Tensor:
    """The mean over the valid samples. What is not valid cannot spoil it, but where it is not finite it spoils the gradient."""
    return torch.where(valid, losses, 0).sum() / valid.sum().clamp_min(1)
