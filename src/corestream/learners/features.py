"""What a model sees in an input: `model.embed(x)` where it exists, else the input of its last Linear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from corestream.gradients.calling import call, unwrap


@torch.no_grad()
def features(model: nn.Module, inputs: Any) -> Tensor:
    """[N, D] for a tensor, tuple or dict of inputs; `embed` gets the first of them."""
    model = unwrap(model)
    embed = getattr(model, "embed", None)
    if callable(embed):
        embedded: Tensor = embed(_first(inputs))
        return embedded.flatten(1)
    return _input_of_last_linear(model, inputs).flatten(1)


def raw_inputs(inputs: Any) -> Tensor:
    """The inputs themselves as vectors, [N, D]."""
    x: Tensor = _first(inputs)
    return x.flatten(1).float()


def _first(inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return next(iter(inputs.values()))
    return inputs[0] if isinstance(inputs, tuple | list) else inputs


def _input_of_last_linear(model: nn.Module, inputs: Any) -> Tensor:
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise ValueError(
            "the model has neither an embed method nor a Linear layer: give it `embed(x)` → [N, D]"
        )
    seen: list[Tensor] = []
    handle = linears[-1].register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        call(model, inputs)
    finally:
        handle.remove()
    return seen[-1]
