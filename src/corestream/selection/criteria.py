"""The three criteria of OCS (Eq. 3, 4 and 7), as functions of inner products alone.

With g_n the samples' gradients and r the mean gradient of the reference:

    S_n = cos(g_n, ḡ)      V_n = −mean_{p≠n} cos(g_n, g_p)      A_n = cos(g_n, r)

Any vectors will do in place of gradients (`vector_criteria`), which is what input-ocs and feat-ocs are.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ..fusing import fusible
from ..gradients import PerSampleGradients
from ..gradients.precision import full_precision

ROUTES = ("auto", "gram", "linear")
IN_PARTS = 1.5  # a multiplication in one large product costs so much less than one in several small products


class Criteria(NamedTuple):
    """`finite` is None where every sample is known to be."""

    similarity: Tensor
    diversity: Tensor
    affinity: Tensor
    finite: Tensor | None


@full_precision
def gradient_criteria(
    grads: PerSampleGradients, reference: PerSampleGradients | None = None, route: str = "auto"
) -> Criteria:
    """S, V and A of the samples; A is zero without a reference. Both routes are exact; "auto" takes the cheaper one for each."""
    route = _checked(route)
    if route == "gram" or (route == "auto" and _gram_is_cheaper(grads)):
        table = grads.gram()
        similarity, diversity = _from_gram(table, _finite_or_none(grads))
    else:
        similarity, diversity = _from_passes(grads)
    affinity = torch.zeros_like(similarity) if reference is None else _affinity(grads, reference, route)
    return Criteria(similarity, diversity, affinity, _finite_or_none(grads))


def _finite_or_none(grads: PerSampleGradients) -> Tensor | None:
    """Which samples are finite; None where all are known to be."""
    return None if grads.all_finite else grads.finite


@full_precision
def gram_criteria(gram: Tensor, finite: Tensor) -> Criteria:
    """S and V from a Gram matrix that is there already; A is zero."""
    similarity, diversity = _from_gram(gram, finite)
    return Criteria(similarity, diversity, torch.zeros_like(similarity), finite)


@full_precision
def joint_criteria(both: PerSampleGradients, count: int, route: str = "auto") -> Criteria:
    """The same where one pass went over the samples, the first `count`, and the reference behind them."""
    others = len(both) - count
    if not others:
        return gradient_criteria(both, None, route)
    apart = min(both.gram_cost(count, count), 5 * both.pass_cost(count)) + min(
        both.pass_cost(len(both)), both.gram_cost(len(both), others)
    )
    if _checked(route) == "linear" or (
        route == "auto" and both.gram_cost(len(both), len(both)) > IN_PARTS * apart
    ):
        both.norms()  # once for all
        return gradient_criteria(both[:count], both[count:], route)
    table = both.gram()
    finite = None if both.all_finite else both.finite[:count]
    return Criteria(*_from_joint_gram(table, finite, count), finite)


@fusible
def _from_joint_gram(table: Tensor, finite: Tensor | None, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """One table, cut in three."""
    squared = table.diagonal()[:count]
    inverse = _inverse_root(squared)
    similarity, diversity = _from_products(table[:count, :count], squared, inverse, finite)
    towards = table[:, count:].sum(1)  # ⟨·, Σ r⟩, of the reference's own samples too
    scale = inverse * _inverse_length(towards[count:].sum(), table.diagonal()[count:])
    return similarity, diversity, _cosine(towards[:count] * scale)


def _checked(route: str) -> str:
    if route not in ROUTES:
        raise ValueError(f"route must be one of {', '.join(ROUTES)}, got {route!r}")
    return route


def _gram_is_cheaper(grads: PerSampleGradients) -> bool:
    """One Gram matrix against norms, two weighted sums and two products."""
    return grads.gram_cost(len(grads), len(grads)) <= 5 * grads.pass_cost(len(grads))


def _from_gram(gram: Tensor, finite: Tensor | None) -> tuple[Tensor, Tensor]:
    squared = gram.diagonal()
    return _from_products(gram, squared, _inverse_root(squared), finite)


def _from_products(
    gram: Tensor, squared: Tensor, inverse: Tensor, finite: Tensor | None
) -> tuple[Tensor, Tensor]:
    rows = gram.sum(1)  # ⟨g_n, Σ g_p⟩
    similarity = _cosine(rows * (inverse * _inverse_length(rows.sum(), squared)))
    return similarity, _diversity(gram @ inverse, squared, inverse, _others(squared, finite))


def _from_passes(grads: PerSampleGradients) -> tuple[Tensor, Tensor]:
    """Two weighted sums of gradients and two products with them: linear in the number of samples."""
    squared = grads.norms().square()
    inverse = _inverse_root(squared)
    total = grads.total()
    similarity = grads.dot(total) * (inverse * _inverse_root(_square(total)))
    products = grads.dot(grads.direction(inverse))
    return similarity, _diversity(products, squared, inverse, _others(squared, _finite_or_none(grads)))


def criteria_in_parts(parts: Callable[[], Iterable[PerSampleGradients]]) -> Criteria:
    """S and V among more samples than one pass should hold, by the linear route: `parts` makes their gradients, twice; A is zero."""
    total, direction = dict[str, Tensor](), dict[str, Tensor]()
    for grads in parts():
        inverse = _inverse_root(grads.norms().square())
        for sums, more in ((total, grads.total()), (direction, grads.direction(inverse))):
            for name, gradient in more.items():
                sums[name] = sums[name] + gradient if name in sums else gradient
    similar, products, squares, fine = [], [], [], []
    for grads in parts():
        similar.append(grads.dot(total))
        products.append(grads.dot(direction))
        squares.append(grads.norms().square())
        fine.append(grads.finite)
    squared, finite = torch.cat(squares), torch.cat(fine)
    inverse = _inverse_root(squared)
    similarity = torch.cat(similar) * (inverse * _inverse_root(_square(total)))
    diversity = _diversity(torch.cat(products), squared, inverse, _others(squared, finite))
    return Criteria(similarity, diversity, torch.zeros_like(similarity), finite)


def _diversity(products: Tensor, squared: Tensor, inverse: Tensor, others: Tensor | int) -> Tensor:
    """Eq. 4 from Σ_p ⟨g_n, g_p/‖g_p‖⟩, the sample itself included: it is taken out again."""
    return (squared * inverse - products) * inverse / others


def _others(squared: Tensor, finite: Tensor | None) -> Tensor | int:
    """How many a sample is compared with; one alone has diversity 0. Samples that are not finite count for nothing."""
    return max(1, len(squared) - 1) if finite is None else (finite.sum() - 1).clamp_min(1)


def _affinity(grads: PerSampleGradients, reference: PerSampleGradients, route: str) -> Tensor:
    inverse = _inverse_root(grads.norms().square())
    n, m = len(grads), len(reference)
    linear = grads.pass_cost(n + m)
    if route == "linear" or (route == "auto" and linear < grads.gram_cost(n + m, m)):
        total = reference.total()
        squared = _square(total)
        return torch.where(squared.isfinite(), grads.dot(total) * (inverse * _inverse_root(squared)), 0)
    table = reference.gram()
    scale = inverse * _inverse_length(table.sum(), table.diagonal())
    return _cosine(grads.gram(reference).sum(1) * scale)


@full_precision
def vector_criteria(vectors: Tensor, reference: Tensor | None = None) -> Criteria:
    """The same criteria on the rows of a matrix: raw inputs or features in place of gradients."""
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    reference = None if reference is None else reference.to(vectors.dtype)
    finite = torch.isfinite(vectors).all(1)
    vectors = vectors.masked_fill(~finite[:, None], 0)
    similarity, diversity = _from_gram(vectors @ vectors.T, finite)
    affinity = torch.zeros_like(similarity)
    if reference is not None:
        total = reference.masked_fill(~torch.isfinite(reference).all(1, keepdim=True), 0).sum(0)
        scale = _inverse_root(vectors.square().sum(1)) * _inverse_root(total.square().sum())
        affinity = vectors @ total * scale
    return Criteria(similarity, diversity, affinity, finite)


def _inverse_root(squared: Tensor) -> Tensor:
    """1 / norm. A zero gradient gets some large number, and its products of zero leave every cosine at 0."""
    return squared.clamp_min(torch.finfo(squared.dtype).tiny).rsqrt()


def _inverse_length(squared: Tensor, terms: Tensor) -> Tensor:
    """1 / ‖Σ g‖ from ‖Σ g‖², a sum over a Gram matrix, and its diagonal.

    Gradients that cancel leave the rounding of their products behind, which has no direction: below it cosines go to 0.
    """
    rounding = terms.sum() * len(terms) * (torch.finfo(squared.dtype).eps / 16)
    return _inverse_root(torch.maximum(squared, rounding))


def _cosine(value: Tensor) -> Tensor:
    """Where gradients nearly cancel, rounding may leave more than there can be."""
    return value.clamp(-1, 1)


def _square(gradient: dict[str, Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in gradient.values()]).square().sum()
