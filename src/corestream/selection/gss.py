"""Gradient-based sample selection in its greedy form (Aljundi, Lin, Goujaud and Bengio 2019, Algorithm 2)."""

from dataclasses import dataclass

import torch
from torch import Tensor


def gss_scores(gram: Tensor, norms: Tensor, reference_norms: Tensor, present: Tensor) -> Tensor:
    """c_n = 1 + max_m cos(g_n, g_m) over the compared memory samples: 0 opposes all, 2 repeats one.

    `gram` is [N, M], ⟨g_n, g_m⟩; `present` [M] says which columns hold a sample. Without any, c_n is 0.1,
    the authors' value for the first samples. A sample whose gradient is not finite scores +inf: it is never
    stored.
    """
    length = norms[:, None] * reference_norms[None, :]
    cosine = torch.where(length > 0, gram / length, 0.0).masked_fill(~present[None, :], -1.0)
    scores = torch.where(present.any(), 1.0 + cosine.max(dim=1).values, 0.1)
    return torch.where(norms.isfinite(), scores, torch.inf)


@dataclass(frozen=True)
class Replacement:
    """Where each new sample goes: its slot in the memory, or −1; and the scores of the slots afterwards."""

    slots: Tensor
    scores: Tensor
    filled: Tensor


def gss_replace(stored: Tensor, filled: Tensor, scores: Tensor, draws: Tensor) -> Replacement:
    """Admit new samples one after the other.

    While the memory has room (`filled` of len(stored) slots are taken), a sample is added. Then a sample that
    opposes what is stored (c < 1) challenges slot i drawn with probability C_i / Σ C, and takes its place
    with probability C_i / (C_i + c). `draws` [N, 2] are uniform random numbers, so the outcome is a pure
    function.
    """
    slots = []
    positions = torch.arange(len(stored), device=stored.device)
    for score, draw in zip(scores, draws, strict=True):
        room = filled < len(stored)
        taken = torch.where(positions < filled, stored, 0.0)
        ladder = taken.cumsum(0)
        rival = torch.searchsorted(ladder, draw[:1] * ladder[-1], right=True).clamp(max=len(stored) - 1)
        held = stored.gather(0, rival)[0]
        wins = (score < 1) & (draw[1] * (held + score) < held)
        slot = torch.where(room, filled, rival[0])
        enters = score.isfinite() & (room | wins)
        slots.append(torch.where(enters, slot, -1))
        stored = torch.where(enters & (positions == slot), score, stored)
        filled = filled + (enters & room)
    return Replacement(_last_of_each(torch.stack(slots)), stored, filled)


def _last_of_each(slots: Tensor) -> Tensor:
    """Of new samples that took the same slot one after the other, the last one stays."""
    again = (slots[:, None] == slots[None, :]).triu(1).any(1)
    return torch.where(again, -1, slots)
