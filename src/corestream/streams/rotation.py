"""Rotating a whole dataset as one gather of pixels."""

import math

import numpy as np
import torch
from torch import Tensor

from corestream.streams.images import take_pixels


def rotate(images: Tensor, degrees: float, interpolation: str = "nearest") -> Tensor:
    """Images [..., H, W] turned counter-clockwise about their centre; what comes from outside is 0.

    `nearest` keeps the dtype (every pixel is one of the original); `bilinear` is for floats.
    """
    if interpolation not in ("nearest", "bilinear"):
        raise ValueError(f"interpolation={interpolation!r}: expected 'nearest' or 'bilinear'")
    if interpolation == "bilinear" and not images.is_floating_point():
        raise TypeError(f"bilinear rotation needs floating-point images, got {images.dtype}")
    if degrees % 360 == 0:
        return images.clone()
    height, width = images.shape[-2:]
    y, x = _source_coordinates(height, width, degrees)
    if interpolation == "nearest":
        return _take(images, np.floor(y + 0.5), np.floor(x + 0.5))
    top, left = np.floor(y), np.floor(x)
    down, right = y - top, x - left
    turned = torch.zeros_like(images)
    for row, row_weight in ((top, 1 - down), (top + 1, down)):
        for column, column_weight in ((left, 1 - right), (left + 1, right)):
            weight = torch.as_tensor(row_weight * column_weight, dtype=images.dtype, device=images.device)
            turned += _take(images, row, column) * weight.view(height, width)
    return turned


def _source_coordinates(height: int, width: int, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """For each output pixel, row by row, the point of the original that lands on it."""
    angle = math.radians(degrees)
    rows, columns = np.mgrid[0:height, 0:width].reshape(2, -1)
    dy, dx = rows - (height - 1) / 2, columns - (width - 1) / 2
    y = math.sin(angle) * dx + math.cos(angle) * dy + (height - 1) / 2
    x = math.cos(angle) * dx - math.sin(angle) * dy + (width - 1) / 2
    # a point meant to lie on a pixel lies on it, whatever the last bit of the cosine
    return y.round(9), x.round(9)


def _take(images: Tensor, row: np.ndarray, column: np.ndarray) -> Tensor:
    """Pixel (row[p], column[p]) of every image at output place p, 0 where that is outside."""
    height, width = images.shape[-2:]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    source = np.where(inside, row * width + column, 0).astype(np.int64)
    taken = take_pixels(images, source)
    return taken.mul_(torch.from_numpy(inside).to(images.device, images.dtype).view(height, width))
