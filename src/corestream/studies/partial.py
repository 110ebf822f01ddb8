"""The share of a network's gradients that a selection with `parameters` looks at."""

from collections.abc import Mapping
from typing import Any

from corestream.models import ResNet18


def share_of_gradients(settings: Mapping[str, Any]) -> float:
    """Of the blocks' parameters, as the paper counts them: the output layer is left out."""
    chosen = settings["parameters"]
    if chosen is None:
        return 1.0
    network = ResNet18(width=settings["width"], form=settings["form"], norm=settings["norm"])
    sizes = {
        name: parameter.numel()
        for name, parameter in network.named_parameters()
        if not name.startswith("head.")
    }
    used = sum(size for name, size in sizes.items() if name.partition(".")[0] in chosen)
    return used / sum(sizes.values())
