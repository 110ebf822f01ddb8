from pathlib import Path

import torch

from corestream.streams import benchmark


def test_each_task_is_one_permutation_of_the_pixels(real_data: Path) -> None:
    stream = benchmark("permuted-mnist", data_dir=real_data, offline=True)
    card = stream.describe()
    assert (card["tasks"], card["classes"], card["train"], card["test"]) == (
        20,
        10,
        [60_000] * 20,
        [10_000] * 20,
    )
    plain = benchmark("rotated-mnist", data_dir=real_data, offline=True)[0].test.tensors()[0].flatten(1)
    tasks = [stream[i].test.tensors()[0].flatten(1) for i in (0, 1)]
    for shown in tasks:
        assert not torch.equal(shown, plain)
        assert torch.equal(shown.sort(1).values, plain.sort(1).values)
        assert torch.equal(shown.double().sum(0).sort().values, plain.double().sum(0).sort().values)
    assert not torch.equal(tasks[0], tasks[1])


def test_the_permutation_is_the_same_for_train_and_test_and_follows_the_seed(publisher) -> None:
    images = publisher.mnist(train=20, test=20)
    stream = benchmark("permuted-mnist", data_dir=images, offline=True)
    assert torch.equal(stream[5].train.tensors()[0], stream[5].test.tensors()[0])
    assert stream[0].title == "permutation 1"
