import gzip
import struct

import numpy as np
import pytest

from corestream.errors import DataError
from corestream.streams.datasets.idx import read_fashion_mnist, read_idx, read_mnist


def test_four_idx_files_become_two_parts(publisher) -> None:
    data = read_mnist(publisher.mnist(train=40, test=20))
    assert data.train.images.shape == (40, 1, 28, 28)
    assert data.train.images[:, 0, 0, 0].tolist() == list(range(40))
    assert data.test.labels.tolist() == [i % 10 for i in range(20)]
    assert read_fashion_mnist(publisher.mnist("fashion-mnist")).classes[9] == "ankle boot"


def test_a_truncated_gzip_is_named_as_damaged(publisher) -> None:
    path = publisher.idx("a.gz", np.random.default_rng(0).integers(0, 256, (50, 28, 28)))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"a\.gz: damaged"):
        read_idx(path, (28, 28))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\x00\x08\x01" + struct.pack(">I", 3) + b"abc", "begins with"),
        (b"\x00\x00\x08\x03" + struct.pack(">3I", 2, 28, 28) + b"abc", "less than the 2 items"),
        (b"\x00\x00\x08\x03" + struct.pack(">3I", 1, 28, 28) + bytes(785), "more than the 1 items"),
        (b"\x00\x00\x08\x03" + struct.pack(">3I", 1, 27, 28) + bytes(756), "expected"),
        (b"\x00\x00\x08\x03" + struct.pack(">3I", 2**32 - 1, 28, 28), "4294967295 items"),
        (b"\x00\x00\x08\x03\x00", "header"),
        (b"", "begins with"),
    ],
)
def test_a_wrong_header_or_length_is_damage(publisher, content: bytes, reason: str) -> None:
    path = publisher.path("x.gz")
    path.write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=reason):
        read_idx(path, (28, 28))


def test_a_file_that_is_not_gzip_is_damage(publisher) -> None:
    path = publisher.path("x.gz")
    path.write_bytes(b"<html>404</html>")
    with pytest.raises(DataError, match="damaged"):
        read_idx(path, ())


def test_labels_must_fit_the_images(publisher) -> None:
    publisher.mnist()
    publisher.idx("mnist/train-labels-idx1-ubyte.gz", np.zeros(39))
    with pytest.raises(DataError, match="40 images but 39 labels"):
        read_mnist(publisher.root)
    publisher.idx("mnist/train-labels-idx1-ubyte.gz", np.full(40, 10))
    with pytest.raises(DataError, match=r"labels-idx1-ubyte\.gz: .*labels from 10 to 10"):
        read_mnist(publisher.root)


def test_a_file_that_unpacks_without_end_is_not_followed(publisher) -> None:
    path = publisher.path("bomb.gz")
    header = b"\x00\x00\x08\x03" + struct.pack(">3I", 10, 28, 28)
    path.write_bytes(gzip.compress(header + bytes(200_000_000)))
    with pytest.raises(DataError, match="more than the 10 items"):
        read_idx(path, (28, 28))
