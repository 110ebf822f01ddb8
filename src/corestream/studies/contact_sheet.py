"""Many small pictures as one."""

import numpy as np
import torch
from torch import Tensor

PER_SIDE = 5


def contact_sheet(pictures: Tensor, per_side: int = PER_SIDE) -> np.ndarray:
    """[n, C, H, W] → one [H', W'] or [H', W', 3] picture of at most per_side² of them, drawn at random."""
    count = min(len(pictures), per_side**2)
    chosen = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))[:count]
    scaled = visible(pictures[chosen])
    _, channels, height, width = scaled.shape
    lines = -(-count // per_side)
    sheet = np.ones((lines * (height + 1) - 1, per_side * (width + 1) - 1, channels), dtype=np.float32)
    for place, picture in enumerate(scaled):
        top, left = place // per_side * (height + 1), place % per_side * (width + 1)
        sheet[top : top + height, left : left + width] = picture.permute(1, 2, 0).numpy()
    return sheet[:, :, 0] if channels == 1 else sheet


def visible(pictures: Tensor) -> Tensor:
    """Values to look at, in 0 … 1: as they are, or each picture stretched where the data are normalised."""
    pictures = pictures.float()
    if pictures.shape[1] not in (1, 3):
        pictures = pictures[:, :1]
    normalised = bool((pictures.amin(dim=(1, 2, 3)) < 0).float().mean() > 0.9)
    if not normalised:
        return pictures.clamp(0, 1)
    low = pictures.amin(dim=(1, 2, 3), keepdim=True)
    high = pictures.amax(dim=(1, 2, 3), keepdim=True)
    return (pictures - low) / (high - low).clamp_min(1e-6)
