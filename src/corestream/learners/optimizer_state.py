"""An optimiser's state as a flat dict of tensors, and back."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor


def flat_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The settings of its groups as one JSON text, in bytes, those of them that are tensors apart; and what it knows of each parameter,
    plain numbers likewise as JSON."""
    whole = optimizer.state_dict()
    groups = [
        {name: value for name, value in group.items() if name != "params"} for group in whole["param_groups"]
    ]
    state = {
        f"group.{number}.{name}": group.pop(name).detach().clone()  # groups may share one
        for number, group in enumerate(groups)
        for name in [name for name, value in group.items() if isinstance(value, Tensor)]
    }
    for number, group in enumerate(groups):
        for name, value in group.items():
            _check_written(f"param_groups[{number}][{name!r}]", value)
    state["groups"] = _written(groups)
    state["class"] = _written(type(optimizer).__name__)
    plain: dict[str, object] = {}
    for index, values in whole["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                state[f"state.{index}.{name}"] = value
            elif value is not None:
                _check_written(f"state of parameter {index}, {name!r}", value)
                plain[f"{index}.{name}"] = value
    return {**state, "plain": _written(plain)} if plain else state


def load_flat_state(optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    own = type(optimizer).__name__
    if (saved := _read(state["class"])) != own:
        raise ValueError(f"the state is of {saved}, and the optimiser is {own}")
    whole = optimizer.state_dict()
    groups = _read(state["groups"])
    if len(groups) != len(whole["param_groups"]):
        raise ValueError(
            f"the state is of an optimiser with {len(groups)} groups of parameters, and this one has {len(whole['param_groups'])}"
        )
    for group, saved in zip(whole["param_groups"], groups, strict=True):
        for name, value in saved.items():
            is_tuple = isinstance(value, list) and not isinstance(group.get(name), list)
            group[name] = tuple(value) if is_tuple else value
    whole["state"] = {}
    for place, value in (_read(state["plain"]) if "plain" in state else {}).items():
        index, _, name = place.partition(".")
        whole["state"].setdefault(int(index), {})[name] = value
    for place, value in state.items():
        kind, _, rest = place.partition(".")
        index, _, name = rest.partition(".")
        if kind == "group":
            group = whole["param_groups"][int(index)]
            now = group.get(name)
            group[name] = value.clone().to(now.device if isinstance(now, Tensor) else value.device)
        elif kind == "state":
            whole["state"].setdefault(int(index), {})[name] = value.clone()
    optimizer.load_state_dict(whole)


ByParameter = dict[Tensor, dict[str, Any]]


def made_by_constructor(optimizer: torch.optim.Optimizer) -> ByParameter:
    """A copy of what an optimiser has made before its first step, and does not make again; nothing where it has taken steps."""
    fresh = all(map(_is_untouched, optimizer.state.values()))
    return deepcopied(optimizer.state) if fresh else {}


def deepcopied(state: Mapping[Tensor, Mapping[str, Any]]) -> ByParameter:
    """A deep copy of the state; its keys, the parameters, are not copied."""
    return {parameter: deepcopy(dict(values)) for parameter, values in state.items()}


def _is_untouched(values: Any) -> bool:
    """Before the first step its number is 0; where it is not told, each tensor of several entries has still one value everywhere."""
    if not isinstance(values, dict):
        return False
    if "step" in values:
        return float(values["step"]) == 0
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    return all(one.numel() > 1 and bool((one == one.flatten()[0]).all()) for one in tensors)


def _check_written(place: str, value: object) -> None:
    try:
        _written(value)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"the optimiser's {place} is a {type(value).__name__}, which a state cannot hold: give a number, a text, a tensor, or a list "
            "or dict of numbers and texts"
        ) from error


def _written(value: object) -> Tensor:
    text = json.dumps(value, default=lambda number: number.item())  # a scheduler may leave one of NumPy's
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _read(text: Tensor) -> Any:
    return json.loads(bytes(text.tolist()))
