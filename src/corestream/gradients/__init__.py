"""What would each sample do to the model? Per-sample gradient geometry, exact, one pass, never N × P."""

from .calling import cross_entropy
from .capture import per_sample_gradients
from .per_sample import PerSampleGradients
from .rules.batch_norm import is_batch_coupled

__all__ = ["PerSampleGradients", "cross_entropy", "is_batch_coupled", "per_sample_gradients"]
