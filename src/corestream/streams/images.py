"""Images that are copied to a device once, whoever uses them, and picking pixels of all of them at once."""

import numpy as np
import torch
from torch import Tensor


class Images:
    """A dataset's images as they lie in the file (bytes), copied to a device once and shared by all tasks."""

    def __init__(self, images: Tensor) -> None:
        self._on = {images.device: images}
        self.shape = images.shape

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self._on.values())).dtype

    def on(self, device: torch.device) -> Tensor:
        if device not in self._on:
            self._on[device] = next(iter(self._on.values())).to(device)
        return self._on[device]


def take_pixels(images: Tensor, source: np.ndarray) -> Tensor:
    """Pixel `source[p]` of every image [..., H, W], its pixels counted row by row, at place p."""
    flat = images.reshape(-1, len(source))
    if images.device.type == "cpu":  # NumPy gathers single bytes about three times as fast as index_select
        taken = torch.from_numpy(np.take(flat.numpy(), source, axis=1))
    else:
        taken = flat.index_select(1, torch.from_numpy(source).to(images.device))
    return taken.view(images.shape)
