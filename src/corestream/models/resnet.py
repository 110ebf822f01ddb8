"""ResNet-18 for small images, in the form of the paper's program and in the standard form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import relu

from corestream.models.classifier import Classifier

Form = Literal["paper", "standard"]
Norm = Literal["batch", "group"]


class ResNet18(Classifier):
    """Four stages of two blocks with 1, 2, 4 and 8 times `width` channels, then the mean over the positions.

    `form="paper"` is the network of the paper's program: one convolution per block, and BatchNorm without
    running statistics, so that the batch's own are used in eval mode too. `form="standard"` is He et al.'s
    basic block with running statistics. `norm="group"` puts GroupNorm in the place of BatchNorm, which leaves
    no coupling of samples.
    """

    def __init__(
        self,
        input_shape: Sequence[int] = (3, 32, 32),
        num_classes: int = 100,
        *,
        width: int = 20,
        dropout: float = 0.0,
        form: Form = "paper",
        norm: Norm = "batch",
        heads: Sequence[Sequence[int]] | None = None,
    ) -> None:
        super().__init__(num_classes, heads)
        if form not in ("paper", "standard"):
            raise ValueError(f"form is {form!r}; allowed are 'paper' and 'standard'")
        block = PaperBlock if form == "paper" else StandardBlock

        def stage(before: int, channels: int, stride: int) -> nn.Sequential:
            first = block(before, channels, stride, dropout, norm)
            return nn.Sequential(first, block(channels, channels, 1, dropout, norm))

        self.stem = conv3x3(input_shape[0], width)
        self.stem_norm = block.norm(norm, width)
        self.stage1 = stage(width, width, 1)
        self.stage2 = stage(width, 2 * width, 2)
        self.stage3 = stage(2 * width, 4 * width, 2)
        self.stage4 = stage(4 * width, 8 * width, 2)
        self.head = nn.Linear(8 * width, num_classes)

    def embed(self, x: Tensor) -> Tensor:
        x = relu(self.stem_norm(self.stem(x)))
        x = self.stage4(self.stage3(self.stage2(self.stage1(x))))
        return x.mean(dim=(2, 3))


class PaperBlock(nn.Module):
    """Convolution, ReLU, norm, dropout; then the shortcut is added, and ReLU, norm, dropout once more."""

    def __init__(self, before: int, channels: int, stride: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.conv = conv3x3(before, channels, stride)
        self.norm1 = self.norm(norm, channels)
        self.norm2 = self.norm(norm, channels)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = shortcut(before, channels, stride)

    @staticmethod
    def norm(norm: Norm, channels: int) -> nn.Module:
        return normalisation(norm, channels, running_statistics=False)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.dropout(self.norm1(relu(self.conv(x))))
        out: Tensor = self.dropout(self.norm2(relu(inner + self.shortcut(x))))
        return out


class StandardBlock(nn.Module):
    """He et al.'s basic block: two convolutions and the shortcut's, each with a norm."""

    def __init__(self, before: int, channels: int, stride: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.conv1 = conv3x3(before, channels, stride)
        self.norm1 = self.norm(norm, channels)
        self.conv2 = conv3x3(channels, channels)
        self.norm2 = self.norm(norm, channels)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = shortcut(before, channels, stride)
        if not isinstance(self.shortcut, nn.Identity):
            self.shortcut = nn.Sequential(self.shortcut, self.norm(norm, channels))

    @staticmethod
    def norm(norm: Norm, channels: int) -> nn.Module:
        return normalisation(norm, channels, running_statistics=True)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = relu(self.norm1(self.conv1(x)))
        out: Tensor = self.dropout(relu(self.norm2(self.conv2(inner)) + self.shortcut(x)))
        return out


def conv3x3(before: int, channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, channels, 3, stride, padding=1, bias=False)


def shortcut(before: int, channels: int, stride: int) -> nn.Module:
    if before == channels and stride == 1:
        return nn.Identity()
    return nn.Conv2d(before, channels, 1, stride, bias=False)


def normalisation(norm: Norm, channels: int, running_statistics: bool) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels, track_running_stats=running_statistics)
    if norm == "group":
        return nn.GroupNorm(math.gcd(4, channels), channels)
    raise ValueError(f"norm is {norm!r}; allowed are 'batch' and 'group'")
