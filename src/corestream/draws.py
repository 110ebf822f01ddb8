"""Random choices; and torch's own generator on a device, from which dropout draws: its state, and setting it back to draw the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def random_places(count: int, k: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """k different places of so many, or all of fewer, in random order."""
    return torch.rand(count, generator=generator, device=device).topk(min(k, count)).indices


def random_state(device: torch.device) -> Tensor:
    module, which = _generators(device)
    state: Tensor = module.get_rng_state(*which)
    return state


def draw_again(device: torch.device, state: Tensor) -> None:
    module, which = _generators(device)
    module.set_rng_state(state, *which)


@contextmanager
def same_draws(device: torch.device) -> Iterator[None]:
    """What is drawn inside is drawn again afterwards, on the processor too."""
    both = (torch.device("cpu"), device)
    states = [random_state(one) for one in both]
    try:
        yield
    finally:
        for one, state in zip(both, states, strict=True):
            draw_again(one, state)


def _generators(device: torch.device) -> tuple[Any, tuple[torch.device, ...]]:
    """The module that keeps the states, and what it must be told: of the processor and of Apple's there is one alone."""
    if device.type == "cpu":
        return torch, ()
    return torch.get_device_module(device), () if device.type == "mps" else (device,)
