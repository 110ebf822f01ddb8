"""An optimiser's state as a flat dict of tensors, and back."""

import json
from collections.abc import Mapping

import torch
from torch import Tensor


def flat_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The settings of its groups as one JSON text, in bytes, those of them that are tensors apart; and what it knows of each parameter."""
    whole = optimizer.state_dict()
    groups = [
        {name: value for name, value in group.items() if name != "params"} for group in whole["param_groups"]
    ]
    state = {
        f"group.{number}.{name}": group.pop(name).detach().clone()  # groups may share one
        for number, group in enumerate(groups)
        for name in [name for name, value in group.items() if isinstance(value, Tensor)]
    }
    state["groups"] = torch.frombuffer(bytearray(json.dumps(groups).encode()), dtype=torch.uint8)
    for index, values in whole["state"].items():
        for name, value in values.items():
            if value is not None:
                state[f"state.{index}.{name}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return state


def load_flat_state(optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    whole = optimizer.state_dict()
    for group, saved in zip(whole["param_groups"], json.loads(bytes(state["groups"].tolist())), strict=True):
        group.update(
            {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
        )
    whole["state"] = {}
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
