"""Which samples? Pure functions: the criteria of OCS, and every rival selector."""

from .bilevel import bilevel
from .criteria import Criteria, gradient_criteria, vector_criteria
from .grad_matching import grad_matching
from .gss import gss_replace, gss_scores
from .herding import herding, herding_per_class
from .kernels import ntk, rbf
from .kmeans import kmeans_plus_plus
from .mir import most_interfered
from .scores import Scores, score

__all__ = [
    "Criteria",
    "Scores",
    "bilevel",
    "grad_matching",
    "gradient_criteria",
    "gss_replace",
    "gss_scores",
    "herding",
    "herding_per_class",
    "kmeans_plus_plus",
    "most_interfered",
    "ntk",
    "rbf",
    "score",
    "vector_criteria",
]
