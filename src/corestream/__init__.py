"""corestream decides, while data streams in, which samples a model should learn from and which it should remember."""

from importlib.metadata import PackageNotFoundError, version

from . import _threads  # noqa: F401  first, before torch
from .errors import ConfigError, CorestreamError, DataError, NonFiniteError, RunError
from .gradients import PerSampleGradients, per_sample_gradients
from .learners.base import Learner
from .learners.ocs import OCS
from .learners.step import Step
from .memory import ReplayMemory, Samples
from .selection.scores import Scores, score
from .streams import Stream, Task, benchmark

try:
    __version__ = version("corestream")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+unknown"

__all__ = [
    "OCS",
    "ConfigError",
    "CorestreamError",
    "DataError",
    "Learner",
    "NonFiniteError",
    "PerSampleGradients",
    "ReplayMemory",
    "RunError",
    "Samples",
    "Scores",
    "Step",
    "Stream",
    "Task",
    "benchmark",
    "per_sample_gradients",
    "score",
]
