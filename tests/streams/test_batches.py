import itertools

import pytest
import torch

from corestream.streams import Batches, benchmark


@pytest.fixture
def train() -> Batches:
    return benchmark("rotated-digits", noise=0.3, label_noise=0.2)[1].train


def same(a, b) -> bool:
    return len(a) == len(b) and all(
        all(torch.equal(p, q) for p, q in zip(x, y, strict=True)) for x, y in zip(a, b, strict=True)
    )


def test_a_batch_is_floats_and_global_labels(train: Batches) -> None:
    x, y = next(iter(train))
    assert x.shape == (50, 1, 16, 16)
    assert x.dtype == torch.float32
    assert y.shape == (50,)
    assert y.dtype == torch.int64


def test_each_iteration_reshuffles_and_counts(train: Batches) -> None:
    first, second = list(train), list(train)
    assert train.epoch == 2
    assert not same(first, second)


def test_setting_the_epoch_repeats_it(train: Batches) -> None:
    first = list(train)
    list(train)
    train.epoch = 0
    assert same(first, list(train))


def test_an_epoch_can_be_resumed_in_the_middle(train: Batches) -> None:
    whole = list(train.batches(4))
    assert same(whole[7:], list(train.batches(4, start=7)))
    assert train.epoch == 0


def test_two_iterations_at_once_do_not_disturb_each_other(train: Batches) -> None:
    a, b = iter(train), iter(train)
    mixed = [(next(a), next(b)) for _ in range(len(train))]
    assert same([pair[0] for pair in mixed], list(train.batches(0)))
    assert same([pair[1] for pair in mixed], list(train.batches(1)))


def test_incomplete_batches_are_dropped_only_where_asked() -> None:
    task = benchmark("rotated-digits")[0]
    assert (task.train.num_samples, len(task.train), len(list(task.train))) == (1297, 25, 25)
    assert (len(task.test), [len(y) for _, y in task.test]) == (2, [256, 244])


@pytest.mark.parametrize("size", [1, 7, 10, 50, 1000, 5000])
def test_any_batch_size_yields_every_sample_once(size: int) -> None:
    test = benchmark("rotated-digits")[0].test.with_batch_size(size).with_indices()
    batches = list(test)
    assert len(batches) == len(test)
    index = torch.cat([batch[-1] for batch in batches])
    assert torch.equal(index.sort().values, torch.arange(500))
    assert all(len(batch[0]) == size for batch in batches[:-1])


def test_the_index_leads_back_to_the_sample(train: Batches) -> None:
    everything, labels = train.tensors()
    for x, y, index in itertools.islice(train.with_indices(), 3):
        assert torch.equal(everything[index], x)
        assert torch.equal(labels[index], y)
        assert torch.equal(train.targets[index], y)


def test_the_test_order_is_shuffled_once_by_the_seed() -> None:
    first = benchmark("rotated-digits", seed=1)[0].test.with_indices()
    assert same(list(first), list(first))
    assert not torch.equal(first.order(0), torch.arange(500))
    assert not torch.equal(first.order(0), benchmark("rotated-digits", seed=2)[0].test.order(0))


def test_changing_a_batch_changes_no_other(train: Batches) -> None:
    untouched = list(train.batches(0))
    for x, _ in train.batches(0):
        x.fill_(7)
    assert same(untouched, list(train.batches(0)))


def test_a_batch_size_below_one_is_refused(train: Batches) -> None:
    with pytest.raises(ValueError, match="batch_size=0"):
        train.with_batch_size(0)


def test_released_images_are_drawn_again() -> None:
    train = benchmark("rotated-digits", tasks=1)[0].train
    before = train.tensors()
    train.release()
    assert train._half._pixels is None
    for mine, again in zip(before, train.tensors(), strict=True):
        assert torch.equal(mine, again)
