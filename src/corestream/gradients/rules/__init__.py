"""Layer rules, one file per family; importing a file registers its rule."""

from . import activation, attention, batch_norm, conv, embedding, linear, normalization, recurrent
from .rule import RULES, Rule, Seen, rule_of

__all__ = [
    "RULES",
    "Rule",
    "Seen",
    "activation",
    "attention",
    "batch_norm",
    "conv",
    "embedding",
    "linear",
    "normalization",
    "recurrent",
    "rule_of",
]
