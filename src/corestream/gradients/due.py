"""When to look again at what was found before."""

import torch


def is_due(asked: int, device: torch.device) -> bool:
    """Whether to look, after so many times. A batch of one class, or of one length, may hide what the next shows: so it is looked at the
    first, second, fourth, eighth … time, and from the 256th on every 256th, for a loss or a model may change on the way. A card would
    have to be waited for, and is looked at the first time alone."""
    times = asked + 1
    return asked == 0 or (device.type != "cuda" and (asked & times == 0 or times % 256 == 0))
