"""How the layers of a model lay out their samples: found by a probe, remembered, and looked at again now and then."""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .backward import Backward
from .due import is_due
from .layout import Fingerprint, Layout, Pattern, candidates, pattern, probe_weights, tolerance
from .recorder import Call

# Of a model, one for each loss and shapes seen; bounded, for a program may make a new loss at every step.
KNOWN_READINGS = 64

Prints = dict[Layout, Fingerprint]


class Reading(NamedTuple):
    """How each call lays out its samples, None where no way fits; and whether samples were seen to depend on each other."""

    layouts: tuple[Layout | None, ...]
    coupled: bool
    sure: bool  # every call has shown a gradient that leaves no doubt
    faint: bool  # some call has shown one that proves nothing

    def contradicts(self, earlier: "Reading") -> bool:
        """Whether samples do not lie as an earlier batch's did."""
        lost = any(
            now is None and then is not None for now, then in zip(self.layouts, earlier.layouts, strict=True)
        )
        return not self.faint and (lost or (self.sure and self.layouts != earlier.layouts))


# what was found, and how often it was asked for; None where one batch has contradicted another: then each is looked at
Known = dict[tuple[Any, ...], tuple[Reading | None, int]]

# How each model's layers lay out their samples, found once by a probe. Kept beside the model, never on it.
_READINGS: WeakKeyDictionary[nn.Module, Known] = WeakKeyDictionary()


def known_readings(model: nn.Module) -> Known:
    return _READINGS.setdefault(model, {})


def pattern_of(one: Call, count: int) -> Pattern:
    return pattern(one.shape, one.events[1], count)


def read_layouts(known: Known, key: tuple[Any, ...], backward: Backward, calls: list[Call]) -> Reading:
    """Each call's layout, as it is known from earlier batches or found now. What is known is looked at again now and then, for an
    operation that nobody has thought of may put the samples of a later batch in another order."""
    earlier, asked = known.get(key, (None, 0))
    if earlier is not None and not is_due(asked, backward.losses.device):
        known[key] = earlier, asked + 1
        return earlier
    found = _probe(backward, calls)
    if earlier is not None and not found.contradicts(earlier):
        known[key] = earlier, asked + 1
        return earlier
    if earlier is not None:
        known[key] = None, asked + 1
    elif found.sure and key not in known:
        known[key] = found, 1
        if len(known) > KNOWN_READINGS:
            del known[next(iter(known))]
    return found


def _probe(backward: Backward, calls: list[Call]) -> Reading:
    """Find each call's layout."""
    count = len(backward.losses)
    options = [list(candidates(pattern_of(one, count))) for one in calls]
    weights = probe_weights(backward.losses)
    plain, weighted = [{} for _ in calls], [{} for _ in calls]  # type: list[Prints], list[Prints]

    def print_into(prints: list[Prints]) -> Callable[[int, Tensor], None]:
        def take(place: int, gradient: Tensor) -> None:
            event = calls[place].events[1]
            prints[place] = {o: Fingerprint.of(o.samples(gradient, count, event)) for o in options[place]}

        return take

    backward.run(torch.ones_like(weights), print_into(plain), keep_graph=True)
    backward.run(weights, print_into(weighted), keep_graph=True)
    every = [print_ for prints in plain for print_ in prints.values()]
    tol = max((print_.tolerance for print_ in every), default=0.0)
    tol = max(tol, *(tolerance(dtype, backward.losses.device) for dtype in backward.graph.dtypes()))
    layouts: list[Layout | None] = []
    sure = True
    for before, after, open_ones in zip(plain, weighted, options, strict=True):
        fitting = [o for o in open_ones if o not in before or before[o].fits(after[o], weights, tol)]
        layouts.append(fitting[0] if fitting else None)
        shown = all(print_.any() for print_ in before.values()) and len(before) == len(open_ones)
        sure = sure and shown and (len(fitting) < 2 or count == 1)
    # samples lie in one of the known ways, and yet the gradient of none is its own loss's alone
    coupled = any(
        layout is None and open_ones and one.has_samples
        for one, layout, open_ones in zip(calls, layouts, options, strict=True)
    )
    faint = any(print_.is_faint() for print_ in every)
    return Reading(tuple(layouts), coupled, sure and not faint, faint)
