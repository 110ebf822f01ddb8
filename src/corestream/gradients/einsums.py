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
    """The letters of an equation `inputs,weight->outputs`, in which the first letter of inputs and outputs is the samples'."""

    inputs: str
    weight: str
    outputs: str

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

    def is_linear(self) -> bool:
        """Whether it is a linear layer, its weight [groups, new, summed] or [groups, summed, new]."""
        terms = (self.inputs, self.weight, self.outputs)
        once = all(len(set(term)) == len(term) for term in terms)
        known = all(sum(one in term for term in terms) > 1 for one in set("".join(terms)))
        of_samples = self.inputs[:1] == self.outputs[:1] != "" and self.inputs[0] not in self.weight
        orders = (self.groups + self.new + self.summed, self.groups + self.summed + self.new)
        return once and known and of_samples and self.weight in orders


def terms_of(equation: str, one: Tensor, other: Tensor) -> tuple[Terms, Tensor, Tensor] | None:
    """The letters, and which of the two tensors has the samples and which is the weight; None where it is no linear layer."""
    given, arrow, outputs = equation.replace(" ", "").partition("->")
    if not arrow or given.count(",") != 1:
        return None
    first, second = given.split(",")
    spare = "".join(letter for letter in ascii_letters if letter not in equation)
    for term, tensor in ((first, one), (second, other)):
        if "..." in term:  # which may stand for some letters of one tensor
            spare = spare[: tensor.dim() - len(term) + 3]
    if "..." in first and "..." in second:
        return None
    first, second, outputs = (term.replace("...", spare) for term in (first, second, outputs))
    for terms, inputs, weight in (
        (Terms(first, second, outputs), one, other),
        (Terms(second, first, outputs), other, one),
    ):
        if terms.is_linear():
            return terms, inputs, weight
    return None


def rule_for(terms: Terms, weight: Tensor) -> Rule:
    """Everything behind the samples' dimension is one position's."""
    events = len(terms.inputs) - 1, len(terms.outputs) - 1
    return Rule(partial(_blocks, terms, tuple(weight.shape)), lambda module, x: events)


def _blocks(terms: Terms, shape: tuple[int, ...], seen: Seen) -> list[Block]:
    left = _arranged(seen.gradient, terms.outputs[1:], terms.groups, terms.new)
    right = _arranged(seen.inputs, terms.inputs[1:], terms.groups, terms.summed)
    if terms.weight != terms.groups + terms.new + terms.summed:
        left, right = right, left
    return [Outer(seen.names["weight"], shape, Factor(left), Factor(right), None, seen.max_bytes)]


def _arranged(x: Tensor, letters: str, groups: str, own: str) -> Tensor:
    """[N, T, *letters] as [N, G, T · the other letters, own]."""
    places = {one: 2 + n for n, one in enumerate(letters)}
    first, last = [places[one] for one in groups], [places[one] for one in own]
    between = [place for one, place in places.items() if one not in groups + own]
    sizes = [math.prod(x.shape[place] for place in part) for part in (first, last)]
    return x.permute(0, *first, 1, *between, *last).reshape(len(x), sizes[0], -1, sizes[1])
