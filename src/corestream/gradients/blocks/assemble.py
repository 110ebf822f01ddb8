"""Put the blocks of one pass together: one block a parameter, or one for a weight and its bias."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from .block import Block
from .mixed import Mixed
from .outer import Outer
from .rows import Rows

SMALL_ROW = 4096  # entries a sample


def assemble(blocks: Sequence[Block], max_bytes: int) -> list[Block]:
    """Join the calls of one layer, and sum what reaches one parameter in several ways."""
    company = defaultdict(set)  # parameter -> the sets of names it appears in
    for block in blocks:
        for name in block.shapes:
            company[name].add(tuple(block.shapes))
    by_names: dict[tuple[str, ...], list[Block]] = defaultdict(list)
    for block in blocks:
        clean = all(len(company[name]) == 1 for name in block.shapes)
        for part in [block] if clean else _singles(block):
            by_names[tuple(part.shapes)].append(part)
    return _with_small_rows_joined([_sum(parts, max_bytes) for parts in by_names.values()])


def _with_small_rows_joined(blocks: list[Block]) -> list[Block]:
    """A network's norms and biases are many and small: together they take one operation where each would take its own."""
    small, others = [], list[Block]()
    for block in blocks:
        if isinstance(block, Rows) and block.flat.shape[1] <= SMALL_ROW:
            small.append(block)
        else:
            others.append(block)
    return [*others, Rows.side_by_side(small)] if small else others


def _singles(block: Block) -> Iterable[Block]:
    for name in block.shapes:
        part = block.only(frozenset([name]))
        assert part is not None
        yield part


def _sum(parts: list[Block], max_bytes: int) -> Block:
    """Those of one kind become one; of several kinds, their rows would have to be added."""
    kinds: dict[Hashable, list[Any]] = defaultdict(list)
    for part in parts:
        kinds[(part.left.groups, part.left.width) if isinstance(part, Outer) else type(part)].append(part)
    # several calls of one layer, or of layers that share their weight
    joined: list[Block] = [one if not others else one.joined(*others) for one, *others in kinds.values()]
    if len(joined) == 1:
        return joined[0]
    (name,) = joined[0].shapes
    return Mixed(name, joined, max_bytes)


def pairs(mine: Sequence[Block], theirs: Sequence[Block], max_bytes: int) -> Iterator[tuple[Block, Block]]:
    """Blocks of the same parameters from two passes, alike enough for an inner product; what only one has is left out."""
    partners = {tuple(block.shapes): block for block in theirs}
    alone: list[Block] = []
    for block in mine:
        partner = partners.get(tuple(block.shapes))
        if partner is not None and _alike(block, partner):
            del partners[tuple(block.shapes)]
            yield block, partner
        else:
            alone.append(block)
    if alone and partners:
        yield from _pairs_by_rows(alone, list(partners.values()), max_bytes)


def _alike(block: Block, other: Block) -> bool:
    if isinstance(block, Outer) and isinstance(other, Outer):
        return (block.left.groups, block.left.width) == (other.left.groups, other.left.width)
    return type(block) is type(other)


def _pairs_by_rows(
    mine: Sequence[Block], theirs: Sequence[Block], max_bytes: int
) -> Iterator[tuple[Block, Block]]:
    """The two passes reached a parameter in different ways: compare the rows."""
    singles = {name: part for block in theirs for part in _singles(block) for name in part.shapes}
    for block in mine:
        for part in _singles(block):
            (name,) = part.shapes
            if name in singles:
                yield Mixed(name, [part], max_bytes), Mixed(name, [singles[name]], max_bytes)
