import zipfile

import pytest

from corestream.errors import DataError
from corestream.streams.datasets.tiny_imagenet import read_tiny_imagenet


def test_the_tree_becomes_two_parts(publisher) -> None:
    data = read_tiny_imagenet(publisher.tiny_imagenet(per_class=2))
    assert data.train.images.shape == (400, 3, 64, 64)
    assert data.train.labels.bincount().tolist() == [2] * 200
    assert data.test.labels.tolist() == list(range(200))
    assert data.classes[:2] == ("cat", "n00000001")
    assert abs(int(data.train.images[300].float().mean()) - 150) <= 1


def rewritten(path, changes: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in (members | changes).items():
            new.writestr(name, data)


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("tiny-imagenet-200/wnids.txt", b"n00000000\n", "names 1 classes"),
        ("tiny-imagenet-200/train/n9/images/a.JPEG", b"x", "wnids.txt does not name"),
        ("tiny-imagenet-200/val/val_annotations.txt", b"val_0.JPEG\n", "line 1"),
        ("tiny-imagenet-200/val/images/val_7.JPEG", b"not a picture", "damaged"),
        ("../../etc/passwd", b"root", "outside"),
    ],
)
def test_a_damaged_tree_is_named(publisher, member: str, content: bytes, reason: str) -> None:
    root = publisher.tiny_imagenet()
    rewritten(root / "tiny-imagenet/tiny-imagenet-200.zip", {member: content})
    with pytest.raises(DataError, match=reason):
        read_tiny_imagenet(root)


def test_a_truncated_zip_is_damage(publisher) -> None:
    root = publisher.tiny_imagenet()
    path = root / "tiny-imagenet/tiny-imagenet-200.zip"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(DataError, match="damaged"):
        read_tiny_imagenet(root)
