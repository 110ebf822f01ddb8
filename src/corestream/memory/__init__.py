"""What is kept? The bounded replay memory and its policies."""

from .balance import balanced
from .replay import ReplayMemory
from .reservoir import Reservoir
from .samples import Samples

__all__ = ["ReplayMemory", "Reservoir", "Samples", "balanced"]
