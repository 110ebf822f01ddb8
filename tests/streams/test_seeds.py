import os

from corestream.streams import benchmark
from corestream.streams.seeds import generator


def test_the_same_seed_and_purpose_give_the_same_numbers_on_any_machine() -> None:
    assert generator(0, "rotated-mnist", 3, "noise").integers(0, 1000, 6).tolist() == [
        864,
        519,
        287,
        793,
        580,
        761,
    ]
    assert generator(7, "order").permutation(8).tolist() == [3, 0, 5, 4, 2, 6, 7, 1]


def test_purposes_and_seeds_do_not_disturb_each_other() -> None:
    draws = {
        tuple(generator(*key).integers(0, 2**32, 4))
        for key in ((0, "a", 1), (0, "a", 2), (1, "a", 1), (0, "a1"), (0, "b", 1))
    }
    assert len(draws) == 5


def test_a_name_that_is_no_utf_8_is_a_purpose_too() -> None:
    one, other = (generator(0, os.fsdecode(name)).integers(0, 2**32) for name in (b"caf\xe9", b"caf\xe8"))
    assert one != other


def test_the_stream_of_a_seed_is_pinned() -> None:
    stream = benchmark("rotated-digits", seed=0, imbalanced=True, noise=0.6, label_noise=0.2)
    task = stream[4]
    assert task.train.original_targets[:12].tolist() == [8, 2, 9, 8, 7, 2, 2, 9, 8, 0, 3, 1]
    assert task.train.is_noise[:12].int().tolist() == [0, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 1]
    assert task.train.order(0)[:6].tolist() == [7, 160, 118, 8, 310, 193]
