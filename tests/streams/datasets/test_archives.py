import io
import tarfile
from pathlib import Path

import pytest

from corestream.errors import DataError
from corestream.streams.datasets.archives import extract_tar, open_zip, tar_members


def test_a_folder_is_unpacked_as_it_is(publisher, tmp_path: Path) -> None:
    archive = publisher.tar("a.tar.gz", {"cifar/train": b"abc", "cifar/meta": b"d", "other/file": b"e"})
    extract_tar(archive, tmp_path / "to", "cifar")
    assert sorted(path.relative_to(tmp_path / "to").as_posix() for path in (tmp_path / "to").rglob("*")) == [
        "cifar",
        "cifar/meta",
        "cifar/train",
    ]
    assert (tmp_path / "to/cifar/train").read_bytes() == b"abc"


@pytest.mark.parametrize("name", ["../evil", "cifar/../../evil", "/tmp/evil", "C:/evil", "cifar\\..\\evil"])
def test_nothing_is_written_outside_the_target(publisher, tmp_path: Path, name: str) -> None:
    archive = publisher.tar("a.tar.gz", {"cifar/train": b"abc", name: b"evil"})
    with pytest.raises(DataError, match="outside"):
        extract_tar(archive, tmp_path / "to", "cifar")
    assert list((tmp_path / "to").iterdir()) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(publisher, tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("cifar/train")
    member.type, member.linkname = kind, "/etc/passwd"
    archive = publisher.tar("a.tar.gz", {"cifar/train": member})
    with pytest.raises(DataError, match="link or a device"):
        extract_tar(archive, tmp_path / "to", "cifar")


def test_a_truncated_archive_leaves_nothing_behind(publisher, tmp_path: Path) -> None:
    archive = publisher.tar("a.tar.gz", {"cifar/train": bytes(range(256)) * 400, "cifar/meta": b"x"})
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(DataError, match="damaged"):
        extract_tar(archive, tmp_path / "to", "cifar")
    assert list((tmp_path / "to").iterdir()) == []


def test_an_archive_without_the_folder_is_refused(publisher, tmp_path: Path) -> None:
    archive = publisher.tar("a.tar.gz", {"other/train": b"abc"})
    with pytest.raises(DataError, match="no folder 'cifar'"):
        extract_tar(archive, tmp_path / "to", "cifar")


def test_a_tar_that_unpacks_without_end_is_stopped(publisher) -> None:
    archive = publisher.tar("a.tar.gz", {"a": bytes(5_000_000)})
    with pytest.raises(DataError, match="unpacks to more"):
        list(tar_members(archive, limit=1_000_000))


def test_a_zip_member_larger_than_it_says_is_damage(publisher) -> None:
    archive = publisher.zip("a.zip", {"a": b"0123456789"})
    content = bytearray(archive.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (5).to_bytes(4, "little")
    archive.write_bytes(content)
    with open_zip(archive) as file, pytest.raises(DataError, match="damaged"):
        file.read("a")


def test_a_zip_member_that_claims_gigabytes_is_refused(publisher) -> None:
    archive = publisher.zip("a.zip", {"a": b"0123456789"})
    content = bytearray(archive.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (4_000_000_000).to_bytes(4, "little")
    archive.write_bytes(content)
    with open_zip(archive) as file, pytest.raises(DataError, match="unpacks to"):
        file.read("a")


def test_what_is_no_zip_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(io.BytesIO(b"nothing").getvalue())
    with pytest.raises(DataError, match="damaged"), open_zip(path):
        pass
