"""Batches of a task: views of a few thousand samples gathered at once, so that a batch costs microseconds."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from corestream.streams.samples import AnySamples, Scale
from corestream.streams.seeds import generator

Batch = tuple[Tensor, ...]
Key = tuple[int, str, int]
# Input values gathered at once: a megabyte of floats stays in a processor's cache; a GPU wants few, large kernels.
CPU_CHUNK, GPU_CHUNK = 1 << 18, 1 << 24


class Batches:
    """Yields `(x, y)`, `(x, y, task)` in the task scenario, and the samples' `index` last when asked.

    A training half is reshuffled at each iteration by (seed, task, epoch); `epoch` counts those begun
    and can be set. A test half is shuffled once. Two Batches made from one by `with_…` share the pixels.
    """

    def __init__(
        self, half: "Half", *, batch_size: int, drop_last: bool = False, indices: bool = False
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: expected at least 1")
        self._half = half
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.indices = indices
        self.epoch = 0

    def with_batch_size(self, batch_size: int) -> "Batches":
        """The same samples in batches of another size, its epochs counted from 0."""
        return Batches(self._half, batch_size=batch_size, drop_last=self.drop_last, indices=self.indices)

    def with_indices(self) -> "Batches":
        """Each batch also carries, last, the place of every sample in the task's training set."""
        return Batches(self._half, batch_size=self.batch_size, drop_last=self.drop_last, indices=True)

    def __len__(self) -> int:
        whole, rest = divmod(self.num_samples, self.batch_size)
        return whole if self.drop_last or rest == 0 else whole + 1

    @property
    def num_samples(self) -> int:
        return len(self._half.samples)

    @property
    def always_finite(self) -> bool:
        """Whether no value can be NaN or infinite, because the images are bytes."""
        return self._half.samples.stays_bytes

    @property
    def is_noise(self) -> Tensor:
        """[n] bool: the inputs that are noise."""
        return self._half.samples.is_noise.to(self._half.device)

    @property
    def labels(self) -> Tensor:
        """[n] the labels as they are yielded, wherever the batches are made."""
        return self._half.samples.noisy_targets.cpu()

    @property
    def corrupted(self) -> Tensor:
        """[n] bool: the inputs that are noise and the labels that were flipped, wherever the batches are made."""
        samples = self._half.samples
        return samples.is_noise.cpu() | (samples.noisy_targets != samples.targets).cpu()

    @property
    def original_targets(self) -> Tensor:
        """[n] the labels before any was flipped."""
        return self._half.samples.targets.to(self._half.device)

    @property
    def targets(self) -> Tensor:
        """[n] the labels as they are yielded."""
        return self._half.samples.noisy_targets.to(self._half.device)

    def order(self, epoch: int) -> Tensor:
        """The places of the samples in the order in which the given epoch yields them."""
        return self._half.order(epoch)

    def __iter__(self) -> Iterator[Batch]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self.batches(epoch)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from number `start` on; the count of begun epochs stays as it is."""
        order = self._half.order(epoch)
        end = len(self) * self.batch_size if self.drop_last else len(order)
        step = self._half.chunk(self.batch_size)
        for first in range(start * self.batch_size, end, step):
            chosen = order[first : min(first + step, end)]
            gathered = self._half.gather(chosen)
            if self.indices:
                gathered = (*gathered, chosen)
            yield from zip(*(torch.split(part, self.batch_size) for part in gathered), strict=True)

    def at(self, places: Tensor) -> Batch:
        """The samples at these places of the task's set, as a batch."""
        gathered = self._half.gather(places)
        return (*gathered, places) if self.indices else gathered

    def release(self) -> None:
        """Let go of the drawn images; who asks for a batch again has them drawn again."""
        self._half.release()

    def tensors(self) -> Batch:
        """All samples at once, in the order of the task's set: for small data and for tests."""
        return self.at(torch.arange(self.num_samples, device=self._half.device))


class Half:
    """The train or test half of a task on a device; its samples and pixels are made at first use."""

    def __init__(
        self, make: Callable[[], AnySamples], *, key: Key, device: torch.device, reshuffle: bool
    ) -> None:
        self._make = make
        self._key = key
        self._reshuffle = reshuffle
        self.device = device
        self._samples: AnySamples | None = None
        self._pixels: tuple[Tensor, Scale | None] | None = None
        self._labels: Batch = ()

    @property
    def samples(self) -> AnySamples:
        if self._samples is None:
            self._samples = self._make()
        return self._samples

    def order(self, epoch: int) -> Tensor:
        seed, name, task = self._key
        purpose = ("epoch", epoch) if self._reshuffle else ("test order",)
        shuffled = generator(seed, name, task, *purpose).permutation(len(self.samples))
        order = torch.from_numpy(shuffled)
        if self.device.type == "cuda":  # from pinned memory, so that nobody waits for the card
            return order.pin_memory().to(self.device, non_blocking=True)
        return order.to(self.device)

    def chunk(self, batch_size: int) -> int:
        """How many samples, a whole number of batches, are gathered at once."""
        at_once = CPU_CHUNK if self.device.type == "cpu" else GPU_CHUNK
        return batch_size * max(1, at_once // (math.prod(self.samples.shape) * batch_size))

    def release(self) -> None:
        self._pixels, self._labels = None, ()

    def gather(self, chosen: Tensor) -> Batch:
        if self._pixels is None:
            self._pixels = self.samples.pixels(self.device)
            tasks = () if self.samples.tasks is None else (self.samples.tasks.to(self.device),)
            self._labels = (self.samples.noisy_targets.to(self.device), *tasks)
        pixels, scale = self._pixels
        x = pixels.index_select(0, chosen)
        return (x if scale is None else scale(x), *(part.index_select(0, chosen) for part in self._labels))
