"""torch.einsum of samples and a weight: a linear layer, with its dimensions in any order and one for each group that the two share."""

import math
from dataclasses import dataclass
from functools import partial
from string import ascii_letters

from torch import Tensor

from .blocks import Block, Outer
from .blocks.factor import Factor
from .rules import Rule, Seen


@dataclass(frozen=True)
class Terms:
    """The letters of an equation `inputs,weight->outputs`. Samples are among the first ones that inputs and outputs have in common."""

    inputs: str
    weight: str
    outputs: str

    @property
    def leading(self) -> int:
        """How many letters inputs and outputs begin with that the weight does not have."""
        same = 0
        for one, other in zip(self.inputs, self.outputs, strict=False):
            if one != other or one in self.weight:
                break
            same += 1
        return same

    @property
    def groups(self) -> str:
        """Those that all three have."""
        return "".join(one for one in self.weight if one in self.inputs and one in self.outputs)

    @property
    def summed(self) -> str:
        return "".join(one for one in self.weight if one in self.inputs and one not in self.outputs)

    @property
    def new(self) -> str:
        return "".join(one for one in self.weight if one in self.outputs and one not in self.inputs)

    @property
    def positions(self) -> str:
        """Those of inputs and outputs alone, behind the leading ones."""
        return "".join(one for one in self.inputs[self.leading :] if one not in self.weight)

    def is_linear(self) -> bool:
        """Whether it is a linear layer, its weight [groups, new, summed] or [groups, summed, new]."""
        terms = (self.inputs, self.weight, self.outputs)
        once = all(len(set(term)) == len(term) for term in terms)
        known = all(sum(one in term for term in terms) > 1 for one in set("".join(terms)))
        orders = (self.groups + self.new + self.summed, self.groups + self.summed + self.new)
        return once and known and self.leading > 0 and self.weight in orders


def terms_of(equation: str, one: Tensor, other: Tensor) -> tuple[Terms, Tensor, Tensor] | None:
    """The letters, and which of the two tensors has the samples and which is the weight; None where it is no linear layer."""
    given, arrow, outputs = equation.replace(" ", "").partition("->")
    if not arrow or given.count(",") != 1:
        return None
    first, second = given.split(",")
    if "..." in first and "..." in second:
        return None
    spare = "".join(letter for letter in ascii_letters if letter not in equation)
    for term, tensor in ((first, one), (second, other)):
        if "..." in term:  # which stands for the letters that are missing
            spare = spare[: tensor.dim() - len(term) + 3]
    first, second, outputs = (term.replace("...", spare) for term in (first, second, outputs))
    for terms, inputs, weight in (
        (Terms(first, second, outputs), one, other),
        (Terms(second, first, outputs), other, one),
    ):
        if terms.is_linear() and _sizes_agree((terms.inputs, inputs), (terms.weight, weight)):
            return terms, inputs, weight
    return None


def _sizes_agree(*terms: tuple[str, Tensor]) -> bool:
    """Torch repeats what has size 1 where the other has more."""
    size: dict[str, int] = {}
    return all(
        size.setdefault(one, n) == n for term, x in terms for one, n in zip(term, x.shape, strict=True)
    )


def rule_for(terms: Terms, weight: Tensor) -> Rule:
    events = len(terms.inputs) - terms.leading, len(terms.outputs) - terms.leading
    return Rule(partial(_blocks, terms, tuple(weight.shape)), lambda module, x: events)


def _blocks(terms: Terms, shape: tuple[int, ...], seen: Seen) -> list[Block]:
    left = _arranged(seen.gradient, terms.outputs, terms, terms.new)
    right = _arranged(seen.inputs, terms.inputs, terms, terms.summed)
    if terms.weight != terms.groups + terms.new + terms.summed:
        left, right = right, left
    return [Outer(seen.names["weight"], shape, Factor(left), Factor(right), None, seen.max_bytes)]


def _arranged(x: Tensor, letters: str, terms: Terms, own: str) -> Tensor:
    """[N, T, *letters behind the leading ones] as [N, G, T · positions, own]."""
    place = {one: 2 + n for n, one in enumerate(letters[terms.leading :])}
    parts = [[place[one] for one in part] for part in (terms.groups, terms.positions, own)]
    groups, positions, width = (math.prod(x.shape[n] for n in part) for part in parts)
    ordered = x.permute(0, *parts[0], 1, *parts[1], *parts[2])
    return ordered.reshape(len(x), groups, x.shape[1] * positions, width)
