"""Scores of a batch's samples, and the picks they lead to (Eq. 6 and 8)."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..counts import check_counts, check_not_negative, is_finite
from ..errors import NonFiniteError
from ..fusing import fusible
from ..gradients import PerSampleGradients, is_batch_coupled, per_sample_gradients
from ..gradients.calling import LossFn, Parameters, check_batch, join_inputs, leaves, trainable, unwrap
from ..gradients.capture import DEFAULT_MAX_BYTES
from ..gradients.independence import stands_alone
from ..gradients.restoring import in_mode
from .criteria import Criteria, gradient_criteria, joint_criteria


@dataclass(frozen=True)
class Scores:
    """S, V, A and their weighted total for each sample; a sample that is not finite has total −inf."""

    similarity: Tensor
    diversity: Tensor
    affinity: Tensor
    total: Tensor

    def top(self, k: int) -> Tensor:
        """The indices of the k best samples, best first; −1 where fewer than k are finite. All of them when k exceeds N."""
        return top(self.total, k)


def top(total: Tensor, k: int, *, all_finite: bool = False) -> Tensor:
    """`Scores.top` of any scores; where `all_finite` is known, no place can be −1."""
    check_counts(k=k)
    values, indices = total.topk(min(k, len(total)))
    return indices if all_finite else indices.masked_fill(values == -torch.inf, -1)


def weigh(criteria: Criteria, tau: float, weights: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Scores:
    """α S + β V + γ τ A (Eq. 8)."""
    similarity, diversity, affinity, finite = criteria
    total = _total(similarity, diversity, affinity, finite, weights[0], weights[1], weights[2] * tau)
    return Scores(similarity, diversity, affinity, total)


@fusible
def _total(
    s: Tensor, v: Tensor, a: Tensor, finite: Tensor | None, alpha: float, beta: float, gamma: float
) -> Tensor:
    total = alpha * s + beta * v + gamma * a  # torch.add's alpha would be compiled anew for each setting
    bad = total.isnan()  # where a square is too large for its type
    return total.masked_fill(bad if finite is None else bad | ~finite, -torch.inf)


def check_weights(tau: float, weights: tuple[float, float, float]) -> None:
    check_not_negative(tau=tau)
    three = hasattr(weights, "__len__") and len(weights) == 3
    if not three or not all(map(is_finite, weights)) or not any(weights):
        raise ValueError(f"weights must be three numbers, for S, V and A, not all of them 0, got {weights!r}")


def score(
    model: nn.Module,
    loss_fn: LossFn | None,
    batch: tuple[Any, Any],
    reference: tuple[Any, Any] | None = None,
    *,
    tau: float = 1000.0,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
    parameters: Parameters | None = None,
    mode: str | None = None,
    route: str = "auto",
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Scores:
    """Score each sample of the batch by the gradient of its own loss (Eq. 8).

    `reference` is a pair like `batch`, the samples that A compares with; `mode` ("train" or "eval") is the model's mode meanwhile,
    its own when None. `route` forces one of the two exact ways to S, V and A: "gram", or "linear" in the number of samples.
    """
    check_weights(tau, weights)
    model = unwrap(model)
    options: dict[str, Any] = {"parameters": _read_once(parameters), "max_bytes": max_bytes}
    with in_mode(model, mode):
        grads = None
        if reference is not None:
            home = next(iter(trainable(model).values())).device
            count = check_batch(home, batch)[2]
            check_batch(home, reference, "reference")
        if reference is not None and not is_batch_coupled(model) and _joinable(batch, reference):
            joined = (join_inputs([batch[0], reference[0]]), join_inputs([batch[1], reference[1]]))
            with suppress(ValueError):  # which of the two is wrong, the passes below tell
                if stands_alone(model, loss_fn, *joined):
                    grads = per_sample_gradients(model, loss_fn, joined, **options)
        if grads is not None and not grads.coupled:
            criteria = joint_criteria(grads, count, route)
        else:
            grads = per_sample_gradients(model, loss_fn, batch, **options)
            try:
                others = (
                    None if reference is None else per_sample_gradients(model, loss_fn, reference, **options)
                )
            except ValueError as error:
                raise ValueError(f"reference: {error}") from error
            criteria = gradient_criteria(grads, others, route)
    scores = weigh(criteria, tau, weights)
    if not scores.total.is_cuda:
        require_finite(scores.total, batch[0], grads)
    return scores


def _read_once(parameters: Parameters | None) -> Parameters | None:
    return list(parameters) if isinstance(parameters, Iterator) else parameters


def _joinable(batch: Any, reference: Any) -> bool:
    """Whether one pass can take both: sequences of another length go apart, and so do targets that are not batches of tensors."""
    try:
        pairs = [zip(leaves(a), leaves(b), strict=True) for a, b in zip(batch, reference, strict=True)]
        alike = all(x.shape[1:] == y.shape[1:] for pair in pairs for x, y in pair)
    except (AttributeError, TypeError, ValueError):
        return False
    return alike and all(isinstance(targets, Tensor | tuple | Mapping) for _, targets in (batch, reference))


def require_finite(total: Tensor, inputs: Any, grads: PerSampleGradients) -> None:
    """At least one sample must have a score."""
    if grads.all_finite or bool((total > -torch.inf).any()):
        return
    bad = [n for n in range(len(total)) if not all(bool(torch.isfinite(x[n]).all()) for x in leaves(inputs))]
    if bad:
        raise NonFiniteError(
            f"no sample of the batch has a finite loss and gradient; the inputs of samples {bad} are not finite"
            + (
                ", and where samples depend on each other one bad input spoils the whole batch"
                if len(bad) < len(total)
                else ""
            )
        )
    raise NonFiniteError(
        f"no sample of the batch has a finite loss and gradient (losses {grads.losses.min():g} to {grads.losses.max():g}): "
        "the model has diverged, or loss_fn is not finite on these outputs"
    )
