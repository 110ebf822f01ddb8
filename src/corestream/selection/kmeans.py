"""k-means++ seeding as a selector: on inputs (Nguyen et al. 2018) or on embeddings (Sener, Savarese 2018)."""

import torch
from torch import Tensor

from ..counts import check_counts


def kmeans_plus_plus(features: Tensor, k: int, *, generator: torch.Generator | None = None) -> Tensor:
    """k rows by scikit-learn's seeding: of a few drawn in proportion to the squared distance from those before, each time the one that
    leaves the others nearest.

    Returns min(k, N) different indices in the order they were drawn; −1 where fewer rows are finite.
    """
    from sklearn.cluster import kmeans_plusplus

    if features.ndim != 2 or len(features) == 0:
        raise ValueError(f"features has shape {tuple(features.shape)}; expected is [N, D] with N ≥ 1")
    check_counts(k=k)
    k = min(k, len(features))
    device = "cpu" if generator is None else generator.device
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator, device=device))
    finite = features.isfinite().all(1).nonzero()[:, 0]
    picked = finite.new_full((k,), -1)
    wanted = min(k, len(finite))
    if wanted:
        _, drawn = kmeans_plusplus(features[finite].cpu().double().numpy(), wanted, random_state=seed)
        order = _without_repetition(torch.from_numpy(drawn).long(), len(finite))[:wanted]
        picked[:wanted] = finite[order.to(finite.device)]
    return picked


def _without_repetition(drawn: Tensor, n: int) -> Tensor:
    """The indices drawn, then the others: with fewer distinct rows than k the seeding repeats itself."""
    first = dict.fromkeys([*drawn.tolist(), *range(n)])
    return torch.tensor(list(first))
