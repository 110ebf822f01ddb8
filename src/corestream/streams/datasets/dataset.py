"""What a reader returns: images as bytes and labels, in two parts."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Part:
    """`images` [n, C, H, W] uint8 and `labels` [n] int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset as read from its publisher's files; `skipped` names files inside them that hold no image."""

    name: str
    train: Part
    test: Part
    classes: tuple[str, ...]
    note: str = ""
    skipped: tuple[str, ...] = ()
