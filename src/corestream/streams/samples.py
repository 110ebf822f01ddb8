"""The samples of a task's train or test half: chosen first, their pixels made when needed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from corestream.streams.corruption import Corruption
from corestream.streams.images import Images


class AnySamples(Protocol):
    """What batches are made of."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def targets(self) -> Tensor: ...
    @property
    def noisy_targets(self) -> Tensor: ...
    @property
    def is_noise(self) -> Tensor: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def tasks(self) -> Tensor | None: ...
    @property
    def scale(self) -> "Scale | None": ...
    @property
    def stays_bytes(self) -> bool: ...
    def __len__(self) -> int: ...
    def pixels(self, device: torch.device) -> "tuple[Tensor, Scale | None]": ...


@dataclass(frozen=True)
class Scale:
    """From stored values to what the model sees: (value / divisor − mean) / std, per channel."""

    divisor: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, images: Tensor) -> Tensor:
        scaled = torch.div(images, self.divisor)
        if self.mean != (0.0,) or self.std != (1.0,):
            shape = (-1, *([1] * (images.dim() - 2)))
            mean, std = (_on(values, scaled.device, scaled.dtype) for values in (self.mean, self.std))
            scaled.sub_(mean.view(shape)).div_(std.view(shape))
        return scaled


@cache  # a captured step goes on reading them
def _on(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Copied once: a step that is captured may not copy from the processor."""
    return torch.tensor(values, device=device, dtype=dtype)


@dataclass(frozen=True)
class Samples:
    """Rows of `images`, drawn by `render` and scaled; a `render` that makes finished floats has no scale."""

    images: Images
    rows: Tensor
    targets: Tensor
    shape: tuple[int, ...]
    scale: Scale | None = Scale()
    render: Callable[[Tensor], Tensor] | None = None
    corruption: Corruption | None = None
    tasks: Tensor | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_noise(self) -> Tensor:
        """[n] bool: the inputs that were replaced by noise."""
        return (
            torch.zeros(len(self), dtype=torch.bool) if self.corruption is None else self.corruption.is_noise
        )

    @property
    def dtype(self) -> torch.dtype:
        """What the inputs arrive as: whole numbers stay, everything else becomes floats."""
        return torch.int64 if self.images.dtype == torch.int64 else torch.float32

    @property
    def stays_bytes(self) -> bool:
        """Whether the drawn images are bytes that only scaling turns into floats."""
        float_noise = (
            self.corruption is not None and not self.corruption.in_bytes and bool(self.is_noise.any())
        )
        return self.images.dtype == torch.uint8 and self.scale is not None and not float_noise

    @property
    def noisy_targets(self) -> Tensor:
        return self.targets if self.corruption is None else self.corruption.targets

    def pixels(self, device: torch.device) -> tuple[Tensor, Scale | None]:
        """The inputs, and the scale still to be applied to them where they are bytes."""
        bytes_noise = self.corruption is not None and self.corruption.in_bytes
        images = self.images.on(device)
        whole = len(self.rows) == len(images) and bool((self.rows == torch.arange(len(self.rows))).all())
        chosen = images if whole else images.index_select(0, self.rows.to(device))
        if bytes_noise:
            chosen = self._with_noise(chosen.clone())
        drawn = chosen if self.render is None else self.render(chosen)
        if bytes_noise or not bool(self.is_noise.any()):
            return drawn, self.scale
        return self._with_noise(drawn.clone() if self.scale is None else self.scale(drawn)), None

    def _with_noise(self, images: Tensor) -> Tensor:
        """The images, some of them overwritten."""
        assert self.corruption is not None
        places = self.is_noise.nonzero().squeeze(1).to(images.device)
        noise = torch.from_numpy(self.corruption.noise(tuple(images.shape[1:])))
        return images.index_copy_(0, places, noise.to(images.device))


@dataclass(frozen=True)
class JointSamples:
    """The samples of several tasks, one after the other."""

    parts: tuple[AnySamples, ...]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def targets(self) -> Tensor:
        return torch.cat([part.targets for part in self.parts])

    @property
    def noisy_targets(self) -> Tensor:
        return torch.cat([part.noisy_targets for part in self.parts])

    @property
    def is_noise(self) -> Tensor:
        return torch.cat([part.is_noise for part in self.parts])

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype

    @property
    def scale(self) -> Scale | None:
        return self.parts[0].scale

    @property
    def stays_bytes(self) -> bool:
        return all(part.scale == self.scale and part.stays_bytes for part in self.parts)

    @property
    def tasks(self) -> Tensor | None:
        tasks = [part.tasks for part in self.parts if part.tasks is not None]
        return torch.cat(tasks) if tasks else None

    def pixels(self, device: torch.device) -> tuple[Tensor, Scale | None]:
        """Bytes where every task has bytes of the same scale, else as they arrive; one task is drawn at a time."""
        as_bytes = self.stays_bytes
        dtype = torch.uint8 if as_bytes else self.dtype
        joined = torch.empty((len(self), *self.shape), dtype=dtype, device=device)
        for part, place in zip(
            self.parts, torch.split(joined, [len(part) for part in self.parts]), strict=True
        ):
            pixels, scale = part.pixels(device)
            place.copy_(pixels if as_bytes or scale is None else scale(pixels))
        return joined, self.scale if as_bytes else None


def rows_of(selected: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(selected, dtype=np.int64))
