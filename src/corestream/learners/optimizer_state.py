"""An optimiser's state as a flat dict of tensors, and back."""

import json
from collections.abc import Mapping
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
    state["groups"] = _written(groups)
    state["class"] = _written(type(optimizer).__name__)
    plain: dict[str, object] = {}
    for index, values in whole["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                state[f"state.{index}.{name}"] = value
            elif value is not None:
                plain[f"{index}.{name}"] = value
    return {**state, "plain": _written(plain)} if plain else state


def load_flat_state(optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    own = type(optimizer).__name__
    if "class" in state and (saved := _read(state["class"])) != own:
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


def _written(value: object) -> Tensor:
    text = json.dumps(value, default=lambda number: number.item())  # a scheduler may leave one of NumPy's
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _read(text: Tensor) -> Any:
    return json.loads(bytes(text.tolist()))
