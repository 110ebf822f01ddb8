"""What stays of each task when its share of the memory is smaller than what there is of it."""

import torch
from torch import Tensor

from .balance import Balance, balanced, groups
from .samples import Samples


def thinned(
    samples: Samples,
    shares: list[Tensor],
    quota: int,
    balance: Balance,
    priority: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Samples:
    """At most `quota` samples of each share, which is told by its places: those with the largest priority, or random ones, in turn from
    each group of the balance."""
    if priority is not None and priority.shape != (len(samples),):
        raise ValueError(
            f"a priority is needed for each of {len(samples)} samples, got {list(priority.shape)}"
        )
    sizes, device = [len(share) for share in shares if len(share) > quota], samples.targets.device
    if not sizes:
        return samples
    # a choice of few by many small operations, some of which would wait for a card: better made beside it
    if priority is None:
        chance = [torch.rand(size, generator=generator, device=device) for size in sizes]
        ranks = iter(torch.cat(chance).cpu().split(sizes))
    else:
        whole = priority.cpu()
        ranks = (whole[share] for share in shares if len(share) > quota)
    whole_groups = None if callable(balance) else groups(samples.targets, balance).cpu()

    def members(share: Tensor) -> Tensor:
        if whole_groups is not None:
            return whole_groups[share]
        # a balance of one's own may look at all of a task
        return groups(samples.targets[share.to(device)], balance).cpu()

    chosen = [
        share if len(share) <= quota else share[balanced(members(share), quota, next(ranks))]
        for share in shares
    ]
    return samples[torch.cat(chosen).to(device)]
