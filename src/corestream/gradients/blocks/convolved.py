"""Per-sample gradients of a convolution: outer products with patches, whose sums need no patch unfolded."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import grad as library

from ..precision import convolutions_like_products
from .block import slices
from .outer import Outer

CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
WEIGHT_GRADIENT = {1: library.conv1d_weight, 2: library.conv2d_weight, 3: library.conv3d_weight}


@dataclass(frozen=True)
class Geometry:
    """How a kernel moves over its input; `padding` as F.pad takes it, the last dimension first."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    padding: tuple[int, ...]
    mode: str

    def padded(
        self, x: Tensor, kernel: tuple[int, ...], steps: tuple[int, ...]
    ) -> tuple[Tensor, tuple[int, ...]]:
        """[N, C, *space], and the zeros around it that a convolution adds by itself; other borders are there afterwards.

        What lies behind the last step is cut off: a transposed convolution may have had more output than its steps reach.
        """
        before, after = self.padding[-2::-2], self.padding[::-2]  # the first dimension first
        spare = [
            size + b + a - (count - 1) * stride - dilation * (k - 1) - 1
            for size, b, a, count, stride, dilation, k in zip(
                x.shape[2:], before, after, steps, self.stride, self.dilation, kernel, strict=True
            )
        ]
        fits = all(rest < stride for rest, stride in zip(spare, self.stride, strict=True))
        if fits and self.mode == "constant" and before == after:
            return x, before
        x = F.pad(x, self.padding, mode=self.mode)
        if not fits:
            x = F.pad(x, [p for rest in reversed(spare) for p in (0, -rest)])
        return x, (0,) * len(before)


@dataclass(eq=False, repr=False)
class Convolved(Outer):
    """A weighted sum of gradients is one weight gradient of the layer; a product with a direction is its output under that direction."""

    geometry: Geometry
    space: tuple[int, ...]  # the positions of `left`, dimension by dimension

    def combine(self, weights: Tensor) -> dict[str, Tensor]:
        if self._is_flat:
            return super().combine(weights)
        weight_gradient, g = WEIGHT_GRADIENT[len(self.space)], self.geometry
        total: Tensor | None = None
        for part in self._parts():
            image = self._image(part)
            image = image * weights[part].view(-1, *[1] * (image.dim() - 1))
            inputs, padding = self._inputs(part)
            with convolutions_like_products(image):
                product = weight_gradient(  # type: ignore[no-untyped-call]
                    inputs, self.shape, image.flatten(0, 1), g.stride, padding, g.dilation, g.groups
                )
            total = product if total is None else total.add_(product)
        assert total is not None, "a block has at least one sample"
        combined = {self.weight: total}
        if self.bias is not None:
            combined[self.bias] = weights @ self._bias_rows()
        return combined

    def dot(self, direction: dict[str, Tensor]) -> Tensor:
        if self._is_flat or self.weight not in direction:
            return super().dot(direction)
        convolve, g = CONVOLVE[len(self.space)], self.geometry
        kernel = direction[self.weight].to(self.left.dtype)
        bias = direction[self.bias].to(self.left.dtype) if self.bias in direction else None
        products = []
        for part in self._parts():
            image = self._image(part)
            inputs, padding = self._inputs(part)
            with convolutions_like_products(image):
                output = convolve(inputs, kernel, bias, g.stride, padding, g.dilation, g.groups)
            products.append((output.unflatten(0, image.shape[:2]) * image).flatten(1).sum(1))
        return products[0] if len(products) == 1 else torch.cat(products)

    def _parts(self) -> list[slice]:
        source = self.right.source  # of which padding may make a copy
        each = 2 * self.left.bytes_each + source[:1].numel() * source.element_size()
        return list(slices(len(self), each, self.max_bytes))

    def _inputs(self, part: slice) -> tuple[Tensor, tuple[int, ...]]:
        return self.geometry.padded(self.right.source[part].flatten(0, 1), self.shape[2:], self.space)

    def _image(self, part: slice) -> Tensor:
        """`left` of some samples as [N, T, C, *space]."""
        calls = self.right.source.shape[1]
        by_channel: Tensor = self.left.source[part].mT.unflatten(3, (calls, *self.space))
        return by_channel.movedim(3, 1).flatten(2, 3)
