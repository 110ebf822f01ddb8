"""Flat states: dicts of tensors that hold others under a prefix, as safetensors can write them."""

from collections.abc import Mapping

from torch import Tensor


def prefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state as a part of another."""
    return {prefix + name: value for name, value in state.items()}


def part_of(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """What `prefixed` made a part, by its own names again."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
