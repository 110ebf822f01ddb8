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
    route = _checked(route)
    by_gram = route == "gram" or (route == "auto" and _gram_is_cheaper(grads))
    if by_gram:
        table = grads.gram()
        inverse = _inverse(table.diagonal().clamp_min(0).sqrt())
        similarity, diversity = _from_gram(table, inverse, grads.finite)
    else:
        similarity, diversity = _from_passes(grads)
    affinity = torch.zeros_like(similarity) if reference is None else _affinity(grads, reference, route)
    return Criteria(similarity, diversity, affinity, grads.finite)


def joint_criteria(both: PerSampleGradients, count: int, route: str = "auto") -> Criteria:
    """The same where one pass went over the samples, the first `count`, and the reference behind them."""
    others = len(both) - count
    if not others:
        return gradient_criteria(both, None, route)
    apart = min(both.gram_cost(count, count), 5 * both.pass_cost(count)) + min(
        both.pass_cost(len(both)), both.gram_cost(len(both), others)
    )
    if _checked(route) == "linear" or (
        route == "auto" and both.gram_cost(len(both), len(both)) > 1.2 * apart
    ):
        both.norms()  # once for all
        return gradient_criteria(both[:count], both[count:], route)
    table, finite = both.gram(), both.finite[:count]  # one table, cut in three
    inverse = _inverse(table.diagonal()[:count].clamp_min(0).sqrt())
    similarity, diversity = _from_gram(table[:count, :count], inverse, finite)
    squared = table[count:, count:].sum()
    affinity = table[:count, count:].sum(1) * inverse * _inverse(squared.clamp_min(0).sqrt())
    return Criteria(similarity, diversity, affinity, finite)


def _checked(route: str) -> str:
    if route not in ROUTES:
        raise ValueError(f"route must be one of {', '.join(ROUTES)}, got {route!r}")
    return route


def _gram_is_cheaper(grads: PerSampleGradients) -> bool:
    """One Gram matrix against norms, two weighted sums and two products."""
    return grads.gram_cost(len(grads), len(grads)) <= 5 * grads.pass_cost(len(grads))


def _from_gram(gram: Tensor, inverse: Tensor, finite: Tensor) -> tuple[Tensor, Tensor]:
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
    n, m = len(grads), len(reference)
    linear = grads.pass_cost(n + m)
    if route == "linear" or (route == "auto" and linear < grads.gram_cost(n + m, m)):
        mean = reference.combine(torch.ones_like(reference.losses))
        return grads.dot(mean) * inverse * _inverse(_norm(mean))
    squared = reference.gram().sum()
    return grads.gram(reference).sum(1) * inverse * _inverse(squared.clamp_min(0).sqrt())


def vector_criteria(vectors: Tensor, reference: Tensor | None = None) -> Criteria:
    """The same criteria on the rows of a matrix: raw inputs or features in place of gradients."""
    finite = torch.isfinite(vectors).all(1)
    vectors = torch.where(finite[:, None], vectors, 0)
    inverse = _inverse(vectors.norm(dim=1))
    similarity, diversity = _from_gram(vectors @ vectors.T, inverse, finite)
    affinity = torch.zeros_like(similarity)
    if reference is not None:
        mean = torch.where(torch.isfinite(reference).all(1, keepdim=True), reference, 0).sum(0)
        affinity = vectors @ mean * inverse * _inverse(mean.norm())
    return Criteria(similarity, diversity, affinity, finite)


def _inverse(norm: Tensor) -> Tensor:
    """1 / norm, and 0 where the norm is 0: a zero gradient has cosine 0 with everything."""
    return torch.where(norm > 0, 1 / norm, 0)


def _norm(gradient: dict[str, Tensor]) -> Tensor:
    return torch.stack([part.square().sum() for part in gradient.values()]).sum().sqrt()
