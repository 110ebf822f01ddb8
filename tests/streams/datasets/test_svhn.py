import numpy as np
import pytest
import scipy.io

from corestream.errors import DataError
from corestream.streams.datasets.svhn import read_svhn


@pytest.mark.parametrize("compress", [True, False])
def test_crops_keep_row_column_and_channel_and_ten_is_zero(publisher, compress: bool) -> None:
    data = read_svhn(publisher.svhn(count=30, compress=compress))
    assert data.train.images.shape == (30, 3, 32, 32)
    assert data.train.images[:, 1, 3, 5].tolist() == list(range(30))
    assert data.train.labels[:11].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "expected X and y"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))}, "expected bytes"),
        ({"X": np.zeros((32, 31, 3, 2), np.uint8), "y": np.ones((2, 1))}, "expected bytes"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.full((2, 1), 11)}, "outside 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.full((2, 1), np.nan)}, "outside 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))}, "2 images but 3 labels"),
    ],
)
def test_wrong_arrays_are_damage(publisher, content: dict, reason: str) -> None:
    publisher.svhn()
    scipy.io.savemat(publisher.path("svhn/test_32x32.mat"), content)
    with pytest.raises(DataError, match=reason):
        read_svhn(publisher.root)


def test_a_truncated_file_is_damage(publisher) -> None:
    publisher.svhn()
    path = publisher.path("svhn/train_32x32.mat")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"train_32x32\.mat: damaged"):
        read_svhn(publisher.root)
