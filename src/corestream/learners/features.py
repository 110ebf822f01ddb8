"""What a model sees in an input: `model.embed(x)` where it exists, else the input of the last Linear that it calls."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..gradients.calling import call, leaves, unwrap


@torch.no_grad()
def features(model: nn.Module, inputs: Any) -> Tensor:
    """[N, D] for a tensor, tuple or dict of inputs; `embed` gets the first of them."""
    model = unwrap(model)
    embed = getattr(model, "embed", None)
    if callable(embed) and not isinstance(embed, nn.Module):  # a layer of that name is no method
        embedded: Tensor = embed(_first(inputs))
        return embedded.flatten(1)
    found = last_linear(model, inputs)
    # a head may have been given some of the samples
    if found is None or len(found[1]) != len(leaves(inputs)[0]):
        raise ValueError(
            "the model has no embed method, and no Linear layer was called last and with all samples, so that it is not clear what it "
            "sees in them: give it `embed(x)` → [N, D]"
        )
    return found[1].flatten(1)


def raw_inputs(inputs: Any) -> Tensor:
    """The inputs themselves as vectors, [N, D]."""
    x: Tensor = _first(inputs)
    return x.reshape(len(x), -1).float()


def _first(inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return next(iter(inputs.values()))
    return inputs[0] if isinstance(inputs, tuple | list) else inputs


@torch.no_grad()
def last_linear(model: nn.Module, inputs: Any) -> tuple[nn.Module, Tensor] | None:
    """The Linear layer that the model calls last, and its input; None where it calls none."""
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    seen: list[tuple[nn.Module, Tensor]] = []

    def see(linear: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append((linear, args[0] if args else kwargs["input"]))

    handles = [linear.register_forward_pre_hook(see, with_kwargs=True) for linear in linears]
    try:
        call(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen[-1] if seen else None
