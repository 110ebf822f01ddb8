"""Layer rules, one file per family; importing a file registers its rule."""

from . import attention, batch_norm, conv, embedding, linear, normalization, recurrent
from .rule import RULES, Rule, Seen, rule_of

__all__ = [
    "RULES",
    "Rule",
    "Seen",
    "attention",
    "batch_norm",
    "conv",
    "embedding",
    "linear",
    "normalization",
    "recurrent",
    "rule_of",
]
