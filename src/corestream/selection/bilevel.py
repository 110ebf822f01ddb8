"""Coresets by bilevel optimisation (Borsos, Mutný and Krause 2020), greedy forward selection on a kernel.

Inner problem: weighted multi-class logistic regression in the kernel's feature space,
    θ*(w) = argmin_θ Σ_{i∈S} w_i ℓ(f_θ(x_i), y_i) + λ/2 ‖θ‖²,   f_θ(x_i) = ⟨θ, φ_i⟩,
whose solution is a combination of the picked samples, θ* = Σ_{i∈S} α_i φ_i (the representer theorem). The sum may be a mean over S, as in
the authors' program: then λ weighs as much more as S is larger, and what is picked follows the classes' shares.
Outer problem:
    min_w G(w) = 1/n · Σ_j ℓ(f_{θ*(w)}(x_j), y_j) over all samples.
The sample whose weight would lower G fastest joins S, then the weights of S take a step down ∂G/∂w.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from ..counts import check_positive
from .matching import check_gram

RIDGE = 0.01
NEWTON_STEPS, CONJUGATE_STEPS = 100, 200  # at most


@dataclass(frozen=True)
class Bilevel:
    """The picked samples, best first, and their weights."""

    picked: Tensor
    weights: Tensor


def bilevel(
    kernel: Tensor,
    targets: Tensor,
    k: int,
    *,
    ridge: float = RIDGE,
    inner: str = "sum",
    generator: torch.Generator | None = None,
) -> Bilevel:
    """min(k, N) samples and weights for the problem above; `ridge` is λ for a kernel of mean diagonal 1, and `inner` whether the inner
    loss is the "sum" or the "mean" over S.

    The first sample is drawn at random. A sample whose kernel row is not finite is left out.
    """
    check_gram(kernel, k)
    check_positive(ridge=ridge)
    check_inner(inner)
    if targets.shape != kernel.shape[:1]:
        raise ValueError(
            f"targets has shape {tuple(targets.shape)}; expected is [{len(kernel)}], a class for each row of the kernel"
        )
    # thousands of small operations, each of which a card would be waited for, and a second thread: better made beside them
    with one_thread():
        found = _bilevel(kernel.cpu().double(), targets.cpu(), k, ridge, inner, generator)
    return Bilevel(found.picked.to(targets.device), found.weights.to(kernel.device))


def check_inner(inner: str) -> None:
    if inner not in ("sum", "mean"):
        raise ValueError(f"inner must be 'sum' or 'mean', got {inner!r}")


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _bilevel(
    kernel: Tensor,
    targets: Tensor,
    k: int,
    ridge: float,
    inner: str,
    generator: torch.Generator | None,
) -> Bilevel:
    usable = kernel.diagonal().isfinite().nonzero()[:, 0]
    if len(usable) == 0:
        return Bilevel(usable, kernel.new_empty(0))
    kernel = kernel[usable][:, usable]
    scale = kernel.diagonal().mean()
    kernel = kernel / torch.where(scale > 0, scale, 1.0)  # of zeros: any sample is as good as another
    labels = one_hot(targets[usable].unique(return_inverse=True)[1]).double()
    k = min(k, len(usable))
    draw = torch.rand(
        len(usable), generator=generator, device=None if generator is None else generator.device
    )
    picked = draw.argmax()[None].cpu()
    weights = kernel.new_ones(1)
    alpha = None
    while True:
        lam = ridge * len(picked) if inner == "mean" else ridge  # |S| times the mean has the same minimum
        alpha = solve_inner(kernel, labels, picked, weights, lam, start=alpha)
        slope = outer_gradient(kernel, labels, picked, weights, lam, alpha)[picked]
        weights = (weights - slope).clamp(min=0)
        alpha = solve_inner(kernel, labels, picked, weights, lam, start=alpha)
        if len(picked) == k:
            return Bilevel(usable[picked], weights)
        slope = outer_gradient(kernel, labels, picked, weights, lam, alpha)
        best = slope.scatter(0, picked, torch.inf).argmin()
        picked = torch.cat([picked, best[None]])
        weights = torch.cat([weights, weights.new_ones(1)])
        alpha = torch.cat([alpha, alpha.new_zeros(1, alpha.shape[1])])


def solve_inner(
    kernel: Tensor,
    labels: Tensor,
    picked: Tensor,
    weights: Tensor,
    ridge: float,
    *,
    start: Tensor | None = None,
    tolerance: float = 1e-6,
) -> Tensor:
    """α of the inner problem by Newton's method, halving a step that does not go down, to 10⁻⁴ of it at least; [|S|, C]."""
    inner = kernel[picked][:, picked]
    y = labels[picked]
    alpha = torch.zeros_like(y) if start is None else start

    def objective(alpha: Tensor) -> Tensor:
        scores = inner @ alpha
        return weights @ cross_entropy(scores, y, reduction="none") + ridge / 2 * (alpha * scores).sum()

    value = objective(alpha)
    for _ in range(NEWTON_STEPS):
        p = (inner @ alpha).softmax(1)
        residual = ridge * alpha + weights[:, None] * (p - y)
        step = _solve(inner, p, weights, ridge, residual, tolerance)
        size = 1.0
        while (lower := objective(alpha - size * step)) > value and size > 1e-4:
            size /= 2
        alpha = alpha - size * step
        if value - lower <= tolerance * value.abs():
            break
        value = lower
    return alpha


def outer_gradient(
    kernel: Tensor,
    labels: Tensor,
    picked: Tensor,
    weights: Tensor,
    ridge: float,
    alpha: Tensor,
    *,
    tolerance: float = 1e-6,
) -> Tensor:
    """∂G/∂w_i = −⟨∇_θ ℓ_i, H⁻¹ ∇_θ G⟩ for every sample i, also those outside S, whose weight is 0; [N].

    H = λ + Σ_S w_i φ_i φ_iᵀ ⊗ h_i is the inner Hessian and u = H⁻¹ ∇_θ G = Σ_j β_j φ_j: outside S, λ β_j
    = ∂G/∂f_j, and inside it β solves a system of the size of S, by conjugate gradients.
    """
    p = (kernel[:, picked] @ alpha).softmax(1)
    error = p - labels
    pull = error / len(kernel)
    beta = (pull / ridge).index_fill(0, picked, 0.0)
    outside = kernel[picked] @ beta
    inside = pull[picked] - weights[:, None] * _curvature(p[picked], outside)
    beta[picked] = _solve(kernel[picked][:, picked], p[picked], weights, ridge, inside, tolerance)
    return -((kernel @ beta) * error).sum(1)


def _curvature(p: Tensor, v: Tensor) -> Tensor:
    """h_i v_i with h = diag(p) − p pᵀ, the Hessian of cross-entropy in the logits."""
    return p * (v - (p * v).sum(1, keepdim=True))


def _solve(
    inner: Tensor, p: Tensor, weights: Tensor, ridge: float, right: Tensor, tolerance: float
) -> Tensor:
    """x with λ x + W h(K x) = right.

    With the root W h = L Lᵀ it is x = (right − L u) / λ, where (λ + Lᵀ K L) u = Lᵀ K right is symmetric and well
    conditioned, as conjugate gradients ask.
    """
    scale = weights.sqrt()[:, None]
    root = p.sqrt()

    def left(v: Tensor) -> Tensor:
        return scale * (root * v - p * (root * v).sum(1, keepdim=True))

    def left_transposed(v: Tensor) -> Tensor:
        return scale * root * (v - (p * v).sum(1, keepdim=True))

    u = conjugate_gradients(
        lambda v: ridge * v + left_transposed(inner @ left(v)),
        left_transposed(inner @ right),
        tolerance=tolerance,
    )
    return (right - left(u)) / ridge


def conjugate_gradients(operator: Callable[[Tensor], Tensor], right: Tensor, *, tolerance: float) -> Tensor:
    """x with operator(x) = right for a symmetric positive semi-definite operator (Hestenes and Stiefel
    1952)."""
    x = torch.zeros_like(right)
    residual = right.clone()
    direction = residual.clone()
    size = (residual * residual).sum()
    target = tolerance**2 * size
    for _ in range(CONJUGATE_STEPS):
        if size <= target or size == 0:
            break
        image = operator(direction)
        curvature = (direction * image).sum()
        if curvature <= 0:
            break
        step = size / curvature
        x = x + step * direction
        residual = residual - step * image
        size, before = (residual * residual).sum(), size
        direction = residual + size / before * direction
    return x
