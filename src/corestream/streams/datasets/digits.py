"""The 1,797 handwritten digits inside scikit-learn: 8 × 8 pixels with values 0 to 16, no download."""

from functools import cache

import torch

from corestream.streams.datasets.dataset import Part


@cache
def digits() -> Part:
    """All digits, in the library's order; the benchmark splits them by seed."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images).to(torch.uint8).unsqueeze(1)
    return Part(images, torch.from_numpy(bunch.target).to(torch.int64))
