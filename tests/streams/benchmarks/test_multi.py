from functools import partial
from pathlib import Path

import pytest
import torch

from corestream.streams import benchmark


@pytest.fixture(scope="module")
def real(real_data: Path):
    make = partial(benchmark, "multi-datasets", data_dir=real_data, offline=True)
    held = make()  # so that the files are read once
    yield make
    del held


def test_five_datasets_and_83_classes(real) -> None:
    stream = real()
    card = stream.describe()
    assert (card["tasks"], card["classes"], card["outputs"], card["scenario"]) == (5, 83, 83, "task")
    assert card["titles"] == ["mnist", "fashion-mnist", "notmnist", "gtsrb", "svhn"]
    assert card["train"] == [1000] * 5
    assert card["test"] == [10_000, 10_000, 3_745, 1_500, 3_000]
    assert stream.classes_of(3) == tuple(range(30, 73))
    assert "gtsrb: a sample" in card["files_note"]
    assert len(card["skipped"]) == 2
    for task in stream:
        x, y, number = task.train.tensors()
        assert x.shape == (1000, 3, 32, 32)
        assert set(y.tolist()) <= set(task.classes)
        assert number.unique().tolist() == [task.index]
        assert abs(float(x.mean())) < 0.1
        assert abs(float(x.std()) - 1) < 0.1

    grey = stream[0].train.tensors()[0]
    assert torch.equal(grey[:, 0], grey[:, 2])


def test_the_long_tail_runs_over_the_forty_classes(real) -> None:
    card = real(imbalanced=True).describe()
    per_class = [count for task in (0, 1, 2, 4) for count in card["train_per_class"][task].values()]
    assert sorted(per_class, reverse=True) == [int(100 * 0.1 ** (i / 39)) for i in range(40)]
    assert card["train"][3] == 1000


def test_the_thousand_images_follow_the_seed(real) -> None:
    first, again, other = (real(seed=seed, tasks=1)[0].train.tensors()[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_notmnist_is_split_without_overlap(publisher) -> None:
    for write in (publisher.mnist, publisher.notmnist, publisher.gtsrb, publisher.svhn):
        write()
    publisher.mnist("fashion-mnist")
    stream = benchmark("multi-datasets", data_dir=publisher.root, offline=True)
    assert (stream[2].train.num_samples, stream[2].test.num_samples) == (80, 20)
    labels = torch.cat([stream[2].train.targets, stream[2].test.targets])
    assert labels.bincount()[20:30].tolist() == [10] * 10


def test_the_joint_stream_keeps_each_datasets_normalisation(publisher) -> None:
    for write in (publisher.mnist, publisher.notmnist, publisher.gtsrb, publisher.svhn):
        write()
    publisher.mnist("fashion-mnist")
    stream = benchmark("multi-datasets", data_dir=publisher.root, offline=True)
    x, _, task = stream.joint()[0].train.tensors()
    for number in range(5):
        assert torch.equal(x[task == number], stream[number].train.tensors()[0])
