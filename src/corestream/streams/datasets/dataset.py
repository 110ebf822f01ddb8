"""What a reader returns: images as bytes and labels, in two parts."""

from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from corestream.streams.images import Images


@dataclass(frozen=True, eq=False)
class Part:
    """`images` [n, C, H, W] uint8 (a user's own: floats and vectors too) and `labels` [n] int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def shared(self) -> Images:
        """The images as every stream of this dataset uses them, once per device."""
        return Images(self.images)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset as read from its publisher's files; `skipped` names files inside them that hold no image."""

    name: str
    train: Part
    test: Part
    classes: tuple[str, ...]
    note: str = ""
    skipped: tuple[str, ...] = ()

    def divided(self, train: Tensor, test: Tensor) -> "Dataset":
        """A dataset published in one piece, its training rows divided into the two parts."""
        parts = (Part(self.train.images[rows], self.train.labels[rows]) for rows in (train, test))
        return replace(self, train=next(parts), test=next(parts))
