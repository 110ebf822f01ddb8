"""Rotated Digits and Rotated MNIST: the same digits in every task, each task turned a little further."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from corestream.streams.benchmarks.recipe import domain_stream
from corestream.streams.datasets import load
from corestream.streams.request import Request
from corestream.streams.rotation import rotate
from corestream.streams.samples import Scale
from corestream.streams.seeds import generator
from corestream.streams.stream import Stream

DIGITS_TEST = 500


def rotated_digits(request: Request) -> Stream:
    """10 tasks of 18°, 16 × 16, bilinear: 1,297 training and 500 test digits; incomplete batches dropped."""
    digits = load("digits")
    order = torch.from_numpy(generator(request.seed, request.name, "split").permutation(len(digits.train)))
    test, train = order[:DIGITS_TEST], order[DIGITS_TEST:]
    turns = _angles(request, 10, 18.0)
    return domain_stream(
        request,
        digits.divided(train, test),
        renders=[partial(_upsampled_and_turned, degrees=angle) for angle in turns],
        titles=[f"{angle:.0f}°" for angle in turns],
        input_shape=(1, 16, 16),
        scale=None,
        batch_size=50,
        drop_last=True,
    )


def rotated_mnist(request: Request) -> Stream:
    """20 tasks of 9°, nearest neighbour, pixels in [0, 1]."""
    mnist = load("mnist", data_dir=request.data_dir, offline=request.offline)
    turns = _angles(request, 20, 9.0)
    return domain_stream(
        request,
        mnist,
        renders=[partial(rotate, degrees=angle) for angle in turns],
        titles=[f"{angle:.0f}°" for angle in turns],
        input_shape=(1, 28, 28),
        scale=Scale(),
        batch_size=100,
    )


def _angles(request: Request, tasks: int, step: float) -> list[float]:
    """Task t turned by step · t degrees, or by an angle drawn from [0°, 180°), as the paper writes."""
    if request.options["angles"] == "random":
        drawn = generator(request.seed, request.name, "angles").uniform(0, 180, tasks)
        return [float(angle) for angle in drawn]
    return [step * t for t in range(tasks)]


def _upsampled_and_turned(images: Tensor, *, degrees: float) -> Tensor:
    """8 × 8 values from 0 to 16 as 16 × 16 floats in [0, 1]."""
    large = F.interpolate(images.to(torch.float32) / 16, scale_factor=2, mode="bilinear", align_corners=False)
    return rotate(large, degrees, "bilinear")
