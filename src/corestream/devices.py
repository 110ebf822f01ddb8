"""What devices differ in: some, Apple's among them, have no double precision."""

import torch
from torch import Tensor


def widest(device: torch.device) -> torch.dtype:
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


def wide(x: Tensor) -> Tensor:
    """In double precision, on the processor where the device has none."""
    return x.double() if widest(x.device) == torch.float64 else x.cpu().double()
