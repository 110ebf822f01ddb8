"""The three criteria of OCS (Eq. 3, 4 and 7), as functions of inner products alone.

With g_n the samples' gradients and r the mean gradient of the reference:

    S_n = cos(g_n, ḡ)      V_n = −mean_{p≠n} cos(g_n, g_p)      A_n = cos(g_n, r)

Any vectors will do in place of gradients (`vector_criteria`), which is what input-ocs and feat-ocs are.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..gradients import PerSampleGradients

ROUTES = ("auto", "gram", "linear")


class Criteria(NamedTuple):
    similarity: Tensor
    diversity: Tensor
    affinity: Tensor
    finite: Tensor


def gradient_criteria(
    grads: PerSampleGradients, reference: PerSampleGradients | None = None, route: str = "auto"
) -> Criteria:
    """S, V and A of the samples; A is zero without a reference. Both routes are exact; "auto" takes the cheaper one for each."""
    if route not in ROUTES:
        raise ValueError(f"route must be one of {', '.join(ROUTES)}, got {route!r}")
    by_gram = route == "gram" or (route == "auto" and grads.gram_cost() <= 5 * grads.pass_cost())
    similarity, diversity = _from_gram(grads.gram(), grads.finite) if by_gram else _from_passes(grads)
    affinity = torch.zeros_like(similarity) if reference is None else _affinity(grads, reference, route)
    return Criteria(similarity, diversity, affinity, grads.finite)


def _from_gram(gram: Tensor, finite: Tensor) -> tuple[Tensor, Tensor]:
    inverse = _inverse(gram.diagonal().clamp_min(0).sqrt())
    rows = gram.sum(1)  # ⟨g_n, Σ g_p⟩
    similarity = rows * inverse * _inverse(rows.sum().clamp_min(0).sqrt())
    cosines = (gram @ inverse) * inverse  # Σ_p cos(g_n, g_p), itself included
    return similarity, _diversity(cosines, inverse, finite)


def _from_passes(grads: PerSampleGradients) -> tuple[Tensor, Tensor]:
    """Two weighted sums of gradients and two products with them: linear in the number of samples."""
    inverse = _inverse(grads.norms())
    total = grads.combine(torch.ones_like(inverse))
    similarity = grads.dot(total) * inverse * _inverse(_norm(total))
    cosines = grads.dot(grads.combine(inverse)) * inverse
    return similarity, _diversity(cosines, inverse, grads.finite)


def _diversity(cosines: Tensor, inverse: Tensor, finite: Tensor) -> Tensor:
    """Eq. 4: a sample alone has diversity 0; samples that are not finite count for nothing."""
    itself = (inverse > 0).to(cosines.dtype)
    return (itself - cosines) / (finite.sum() - 1).clamp_min(1)


def _affinity(grads: PerSampleGradients, reference: PerSampleGradients, route: str) -> Tensor:
    inverse = _inverse(grads.norms())
    linear = reference.pass_cost() + grads.pass_cost()
    if route == "linear" or (route == "auto" and linear < grads.gram_cost(reference) + reference.gram_cost()):
        mean = reference.combine(torch.ones_like(reference.losses))
        return grads.dot(mean) * inverse * _inverse(_norm(mean))
    squared = reference.gram().sum()
    return grads.gram(reference).sum(1) * inverse * _inverse(squared.clamp_min(0).sqrt())


def vector_criteria(vectors: Tensor, reference: Tensor | None = None) -> Criteria:
    """The same criteria on the rows of a matrix: raw inputs or features in place of gradients."""
    finite = torch.isfinite(vectors).all(1)
    vectors = torch.where(finite[:, None], vectors, 0)
    similarity, diversity = _from_gram(vectors @ vectors.T, finite)
    affinity = torch.zeros_like(similarity)
    if reference is not None:
        mean = torch.where(torch.isfinite(reference).all(1, keepdim=True), reference, 0).sum(0)
        affinity = vectors @ mean * _inverse(vectors.norm(dim=1)) * _inverse(mean.norm())
    return Criteria(similarity, diversity, affinity, finite)


def _inverse(norm: Tensor) -> Tensor:
    """1 / norm, and 0 where the norm is 0: a zero gradient has cosine 0 with everything."""
    return torch.where(norm > 0, 1 / norm, 0)


def _norm(gradient: dict[str, Tensor]) -> Tensor:
    return torch.stack([part.square().sum() for part in gradient.values()]).sum().sqrt()
