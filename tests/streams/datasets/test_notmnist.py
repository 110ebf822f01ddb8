import tarfile

import pytest

from corestream.errors import DataError
from corestream.streams.datasets.notmnist import read_notmnist


def test_letters_are_labels_and_empty_files_are_counted(publisher) -> None:
    data = read_notmnist(publisher.notmnist(per_class=10))
    assert data.train.images.shape == (100, 1, 28, 28)
    assert data.train.labels.bincount().tolist() == [10] * 10
    assert data.skipped == ("notMNIST_small/A/empty.png",)
    assert len(data.test) == 0


def test_a_truncated_tar_is_damage(publisher) -> None:
    root = publisher.notmnist()
    path = root / "notmnist/notMNIST_small.tar.gz"
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DataError, match="damaged"):
        read_notmnist(root)


@pytest.mark.parametrize("name", ["../A/x.png", "/A/x.png", "small/Z/x.png"])
def test_a_member_in_a_wrong_place_is_refused(publisher, name: str) -> None:
    publisher.tar("notmnist/notMNIST_small.tar.gz", {name: b"x"})
    with pytest.raises(DataError, match=r"outside|none of the folders"):
        read_notmnist(publisher.root)


def test_a_link_is_refused(publisher) -> None:
    link = tarfile.TarInfo("small/A/x.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    publisher.tar("notmnist/notMNIST_small.tar.gz", {"small/A/x.png": link})
    with pytest.raises(DataError, match="link"):
        read_notmnist(publisher.root)


def test_a_picture_of_another_size_is_damage(publisher) -> None:
    from PIL import Image

    path = publisher.path("x.png")
    Image.new("L", (30, 28)).save(path)
    publisher.tar("notmnist/notMNIST_small.tar.gz", {"small/A/x.png": path.read_bytes()})
    with pytest.raises(DataError, match="28 × 28"):
        read_notmnist(publisher.root)
