"""A learner's whole state as one flat dict of tensors, and back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..memory import Reservoir
from ..states import part_of, prefixed
from .optimized import optimized
from .optimizer_state import flat_state, load_flat_state

if TYPE_CHECKING:
    from .base import Learner


def state_of(learner: "Learner") -> dict[str, Tensor]:
    learner._follow_memory()
    state = {
        **prefixed("model.", learner.model.state_dict()),
        **prefixed("optimizer.", flat_state(learner.optimizer)),
        **prefixed("learner.", _own(learner)),
        **prefixed("beside.", _beside(learner)),
    }
    if isinstance(learner.loss_fn, nn.Module):
        state |= prefixed("loss.", learner.loss_fn.state_dict())
    if learner.memory is not None:
        state |= prefixed("memory.", learner.memory.state_dict())
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{name} is a {type(value).__name__}, and a state holds tensors alone: let get_extra_state return a tensor"
            )
    return {name: value.detach().clone() for name, value in state.items()}


def load_state(learner: "Learner", state: Mapping[str, Tensor]) -> None:
    before = state_of(learner)
    try:
        _load(learner, state)
        if unlike := sorted(state_of(learner).keys() ^ state.keys()):
            raise ValueError(f"missing, or without a place here: {', '.join(unlike)}")
    except Exception as error:  # whatever it is that somebody has taken for a state
        _load(learner, before)
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"this is not the state of such a learner: {what}") from error


def _load(learner: "Learner", state: Mapping[str, Tensor]) -> None:
    # optimisers keep some numbers on the processor, and put the others in their places themselves
    optimizer = part_of(state, "optimizer.")
    here = {
        name: value.to(learner.device) for name, value in state.items() if not name.startswith("optimizer.")
    }
    own = part_of(here, "learner.")
    learner._is_new, learner._kind = False, None
    learner.model.load_state_dict(part_of(here, "model."))
    if isinstance(learner.loss_fn, nn.Module):
        learner.loss_fn.load_state_dict(part_of(here, "loss."))
    for name, parameter in _beside(learner).items():
        saved = here[f"beside.{name}"]
        if saved.shape != parameter.shape:
            raise ValueError(f"beside.{name}: {list(saved.shape)}, and {list(parameter.shape)} here")
        parameter.data.copy_(saved)
    load_flat_state(learner.optimizer, optimizer)
    learner.task, learner._concluded = int(own["task"]), bool(own["concluded"])
    learner._spoiled.copy_(own["spoiled"])
    learner.generator.set_state(own["generator"].cpu())
    if learner.memory is not None:
        learner.memory.load_state_dict(part_of(here, "memory."))
    if isinstance(learner.candidates, Reservoir):
        learner.candidates.load_state_dict(part_of(own, "candidates."))
    learner._load_state(own)


def _own(learner: "Learner") -> dict[str, Tensor]:
    """What is neither the model's, the optimiser's nor the memory's."""
    kept = learner.candidates
    return {
        "task": torch.tensor(learner.task),
        "concluded": torch.tensor(learner._concluded),
        "spoiled": learner._spoiled,
        "generator": learner.generator.get_state(),
        **(prefixed("candidates.", kept.state_dict()) if isinstance(kept, Reservoir) else {}),
        **learner._state(),
    }


def _beside(learner: "Learner") -> dict[str, Tensor]:
    """Parameters that the optimiser trains and that are neither the model's nor a loss module's: those of a loss function, say."""
    known = list(learner.model.parameters())
    known += learner.loss_fn.parameters() if isinstance(learner.loss_fn, nn.Module) else []
    others = {id(p): p for p in optimized(learner.optimizer)}
    for parameter in known:
        others.pop(id(parameter), None)
    return {str(place): parameter for place, parameter in enumerate(others.values())}
