import pickle

import pytest

from corestream.errors import DataError
from corestream.streams.datasets.cifar import read_cifar10, read_cifar100


def test_cifar10s_five_batches_are_one_part(publisher) -> None:
    data = read_cifar10(publisher.cifar10(per_batch=10))
    assert data.train.images.shape == (50, 3, 32, 32)
    assert data.train.images[13, 0, 0, 0] == 3
    assert len(data.test) == 10
    assert data.classes[3] == "class 3"


def test_cifar100_has_its_fine_labels(publisher) -> None:
    data = read_cifar100(publisher.cifar100(train=400, test=200))
    assert (len(data.train), len(data.test), len(data.classes)) == (400, 200, 100)
    assert data.train.labels[:101].tolist() == [*range(100), 0]


def test_a_pickle_that_imports_something_is_damage(publisher) -> None:
    publisher.cifar100()
    publisher.path("cifar-100-python/train").write_bytes(pickle.dumps(print, protocol=2))
    with pytest.raises(DataError, match=r"train: damaged.*imports"):
        read_cifar100(publisher.root)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({b"fine_labels": [0]}, "'data'"),
        ({b"data": b"abc", b"fine_labels": [0]}, "'data'"),
        ({b"data": [1], b"fine_labels": b"x"}, "'data'"),
    ],
)
def test_missing_parts_are_damage(publisher, content: dict, reason: str) -> None:
    publisher.cifar100()
    publisher.pickle("cifar-100-python/test", content)
    with pytest.raises(DataError, match=reason):
        read_cifar100(publisher.root)


def test_a_truncated_batch_is_damage_and_named(publisher) -> None:
    publisher.cifar10()
    path = publisher.path("cifar-10-batches-py/data_batch_3")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="data_batch_3: damaged"):
        read_cifar10(publisher.root)
