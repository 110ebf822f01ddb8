"""Torch's own generator on a device, from which dropout draws: its state, and setting it back so that the same is drawn again."""

import torch
from torch import Tensor


def random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def draw_again(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
