"""PReLU, the activation that learns: y = weight · x where x is negative, with one weight for all or one a channel."""

from torch import Tensor, nn

from ..blocks import Block, Rows
from .normalization import channel_events
from .rule import Seen, register


def _events(module: nn.Module, x: Tensor) -> tuple[int, int]:
    assert isinstance(module, nn.PReLU)
    return (0, 0) if module.weight.numel() == 1 else channel_events(module, x)


@register(nn.PReLU, events=_events)
def prelu(seen: Seen) -> list[Block]:
    assert isinstance(seen.module, nn.PReLU)
    values = seen.gradient * seen.inputs.clamp_max(0)
    one = seen.module.weight.numel() == 1
    rows = values.flatten(1).sum(1) if one else values.sum((1, *range(3, values.dim())))
    return [Rows(seen.names["weight"], rows.reshape(len(rows), *seen.module.weight.shape))]
