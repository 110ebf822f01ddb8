"""The perceptron of Rotated and Permuted MNIST."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import relu

from corestream.models.classifier import Classifier


class MLP(Classifier):
    """Two hidden layers of `width` ReLU units, dropout after the first."""

    def __init__(
        self,
        input_shape: Sequence[int] = (784,),
        num_classes: int = 10,
        *,
        width: int = 256,
        dropout: float = 0.0,
        heads: Sequence[Sequence[int]] | None = None,
    ) -> None:
        super().__init__(num_classes, heads)
        self.hidden1 = nn.Linear(math.prod(input_shape), width)
        self.dropout = nn.Dropout(dropout)
        self.hidden2 = nn.Linear(width, width)
        self.head = nn.Linear(width, num_classes)

    def embed(self, x: Tensor) -> Tensor:
        x = x.flatten(1).to(self.hidden1.weight.dtype)  # features may be whole numbers
        x = self.dropout(relu(self.hidden1(x)))
        return relu(self.hidden2(x))
