"""Images that are copied to a device once, whoever uses them."""

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
