import numpy as np

from corestream.streams.imbalance import keep_counts, keep_full, long_tail, with_one_of_each
from corestream.streams.seeds import generator


def test_full_classes_keep_all_and_the_others_their_first_tenth() -> None:
    labels = np.arange(1000) % 10
    rows = keep_full(labels, (0, 5))
    kept = np.bincount(labels[rows])
    assert kept.tolist() == [100, 10, 10, 10, 10, 100, 10, 10, 10, 10]
    assert rows[labels[rows] == 3].tolist() == list(range(3, 103, 10))


def test_a_small_class_keeps_one_sample() -> None:
    assert len(keep_full(np.array([0, 0, 1, 1, 1]), (0,))) == 3


def test_the_long_tail_goes_from_all_to_the_factor() -> None:
    counts = long_tail(range(100), 500, 0.1)
    ordered = sorted(counts.values(), reverse=True)
    assert (ordered[0], ordered[-1]) == (500, 50)
    assert ordered == [max(1, int(500 * 0.1 ** (i / 99))) for i in range(100)]
    assert list(counts) != sorted(counts)


def test_the_order_of_the_tail_is_fixed() -> None:
    assert list(long_tail(range(6), 100, 0.1).items()) == [
        (3, 100),
        (0, 63),
        (1, 39),
        (5, 25),
        (4, 15),
        (2, 10),
    ]


def test_counts_are_drawn_by_seed_and_bounded_by_what_is_there() -> None:
    labels = np.repeat([0, 1, 2], [50, 50, 3])
    first = keep_counts(labels, {0: 10, 1: 20, 2: 30}, generator(0, "x"))
    assert np.bincount(labels[first]).tolist() == [10, 20, 3]
    assert np.array_equal(first, keep_counts(labels, {0: 10, 1: 20, 2: 30}, generator(0, "x")))
    assert not np.array_equal(first, keep_counts(labels, {0: 10, 1: 20, 2: 30}, generator(1, "x")))


def test_no_class_of_a_task_is_thinned_away() -> None:
    tasks, labels = np.array([7, 7, 7, 7, 9, 9, 9, 9]), np.array([0, 1, 0, 1, 1, 1, 2, 2])
    assert with_one_of_each(np.array([2, 7]), tasks, labels).tolist() == [1, 2, 4, 7]
    assert with_one_of_each(np.array([0, 3, 5, 6]), tasks, labels).tolist() == [0, 3, 5, 6]
