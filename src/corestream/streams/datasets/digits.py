"""The 1,797 handwritten digits inside scikit-learn: 8 × 8 pixels with values 0 to 16, no download."""

from pathlib import Path

import torch

from corestream.streams.datasets.dataset import Dataset, Part


def read_digits(_: Path) -> Dataset:
    """All digits as `train`, in the library's order; whoever uses them splits them."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images).to(torch.uint8).unsqueeze(1)
    nothing = Part(torch.empty((0, 1, 8, 8), dtype=torch.uint8), torch.empty(0, dtype=torch.int64))
    train = Part(images, torch.from_numpy(bunch.target).to(torch.int64))
    return Dataset("digits", train, nothing, tuple("0123456789"))
