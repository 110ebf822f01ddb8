"""The two rules by which the paper makes a stream imbalanced: few full classes, and a long tail."""

from collections.abc import Mapping, Sequence

import numpy as np

from corestream.streams.seeds import generator


def keep_full(labels: np.ndarray, full: Sequence[int], share: float = 0.1) -> np.ndarray:
    """The rows that stay: all of the `full` classes, the first `share` of each other one (at least one)."""
    stay = np.isin(labels, full)
    for label in np.unique(labels[~stay]):
        rows = np.flatnonzero(labels == label)
        stay[rows[: max(1, int(share * len(rows)))]] = True
    return np.flatnonzero(stay)


def long_tail(classes: Sequence[int], largest: int, factor: float) -> dict[int, int]:
    """largest · factor^(i / (C − 1)) samples of the i-th of C classes, in a shuffled order that is fixed."""
    order = generator(0, "long tail", len(classes)).permutation(len(classes))
    last = max(1, len(classes) - 1)
    return {classes[c]: max(1, int(largest * factor ** (i / last))) for i, c in enumerate(order)}


def keep_counts(labels: np.ndarray, counts: Mapping[int, int], random: np.random.Generator) -> np.ndarray:
    """The rows of `counts[c]` random samples of each class c (all it has where they are fewer)."""
    chosen = [random.permutation(np.flatnonzero(labels == label))[:count] for label, count in counts.items()]
    return np.sort(np.concatenate(chosen))


def with_one_of_each(rows: np.ndarray, tasks: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The rows, and the first one of every class of every task that has none among them."""
    numbered = np.unique(tasks, return_inverse=True)[1]
    pairs = numbered * (labels.max() + 1) + labels
    occurring, firsts = np.unique(pairs, return_index=True)
    return np.union1d(rows, firsts[~np.isin(occurring, pairs[rows])])
