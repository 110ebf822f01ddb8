"""Noise in the inputs and in the labels of a task's training samples, recorded sample by sample."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from corestream.streams.seeds import generator

NOISE_BLOCK = 2048  # images that share a generator, so that all processors draw a task's noise at once


@dataclass(frozen=True)
class Corruption:
    """`is_noise` [n] marks inputs replaced by N(0, 1), `targets` [n] are the labels after it."""

    is_noise: Tensor
    targets: Tensor
    key: tuple[int, str, int]
    in_bytes: bool = False

    def noise(self, shape: tuple[int, ...]) -> np.ndarray:
        """The same at every call: N(0, 1), or that written into bytes as the authors' program does."""
        noise = np.empty((int(self.is_noise.sum()), *shape), dtype=np.float32)
        blocks = range(0, len(noise), NOISE_BLOCK)

        def fill(first: int) -> None:
            random = generator(*self.key, "noise", first)
            random.standard_normal(dtype=np.float32, out=noise[first : first + NOISE_BLOCK])

        with ThreadPoolExecutor(min(len(blocks) or 1, os.cpu_count() or 1)) as pool:
            list(pool.map(fill, blocks))
        return noise.astype(np.int16).astype(np.uint8) if self.in_bytes else noise


def corrupt(
    targets: Tensor,
    classes: tuple[int, ...],
    *,
    noise: float,
    label_noise: float,
    key: tuple[int, str, int],
    in_bytes: bool = False,
) -> Corruption | None:
    """A share of the inputs becomes noise; a share of the labels becomes another class of the task."""
    if noise == 0 and label_noise == 0:
        return None
    seed, name, task = key
    is_noise = torch.zeros(len(targets), dtype=torch.bool)
    is_noise[_chosen(len(targets), noise, generator(seed, name, task, "noisy samples"))] = True
    flipped = targets.clone()
    if label_noise > 0 and len(classes) > 1:
        random = generator(seed, name, task, "label noise")
        chosen = _chosen(len(targets), label_noise, random)
        place = np.zeros(max(classes) + 1, dtype=np.int64)
        place[list(classes)] = np.arange(len(classes))
        old = place[targets[chosen].numpy()]
        new = (old + random.integers(1, len(classes), size=len(old))) % len(classes)
        flipped[chosen] = torch.tensor(classes)[torch.from_numpy(new)]
    return Corruption(is_noise, flipped, key, in_bytes)


def _chosen(count: int, share: float, random: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.sort(random.permutation(count)[: round(share * count)]))
