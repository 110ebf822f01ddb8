"""Gradient matching (Campbell and Broderick 2019), greedy and with equal weights."""

from torch import Tensor

from ..devices import wide
from .matching import match_mean


def grad_matching(gram: Tensor, k: int) -> Tensor:
    """The k samples whose mean gradient is greedily closest to the mean of all: min ‖ ḡ − 1/k · Σ g_n ‖.

    `gram` is ⟨g_n, g_p⟩ as `per_sample_gradients(...).gram()` gives it. Best first.
    """
    return match_mean(wide(gram), k).to(gram.device)
