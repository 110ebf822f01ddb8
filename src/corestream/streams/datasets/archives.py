"""Opening zips and tars from strangers: no name may point outside, none may be a link, sizes are capped."""

import gzip
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from corestream.streams.datasets.reading import Capped, Damaged, reading

MAX_UNPACKED = 1 << 30
MAX_MEMBER = 64 << 20
MAX_NAME = 250  # bytes, which every file system takes


def checked_name(path: Path, name: str) -> PurePosixPath:
    """The member's name, if it stays inside the archive's folder."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in name or "\0" in name:
        raise Damaged(path, f"its member {name!r} points outside the archive")
    if len(os.fsencode(name)) > MAX_NAME:
        raise Damaged(path, f"one of its members has a name of {len(name):,} characters")
    return pure


class Zip:
    """A zip whose members are read one by one, each and all together under a cap."""

    def __init__(self, path: Path, file: zipfile.ZipFile) -> None:
        self.path = path
        self._file = file
        self._left = MAX_UNPACKED
        self.names = [info.filename for info in file.infolist() if not info.is_dir()]
        for name in self.names:
            checked_name(path, name)

    def read(self, name: str) -> bytes:
        """A member's bytes; its checksum is the zip's own."""
        try:
            info = self._file.getinfo(name)
        except KeyError:
            raise Damaged(self.path, f"its member {name!r} is missing") from None
        self._left -= info.file_size
        if info.file_size > MAX_MEMBER or self._left < 0:
            raise Damaged(self.path, f"its member {name!r} unpacks to {info.file_size:,} bytes")
        with reading(self.path), self._file.open(info) as member:
            data = member.read(info.file_size + 1)
            if len(data) != info.file_size:
                raise ValueError(f"{name!r} is not as long as announced")
            return data


@contextmanager
def open_zip(path: Path) -> Iterator[Zip]:
    with reading(path), zipfile.ZipFile(path) as file:
        yield Zip(path, file)


def tar_members(path: Path, limit: int) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Name and bytes of every file in a gzipped tar, in order; a link or a device is an error."""
    with (
        reading(path),
        gzip.open(path) as unpacked,
        tarfile.open(fileobj=Capped(unpacked, limit), mode="r|") as tar,
    ):
        for member in tar:
            name = checked_name(path, member.name)
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise Damaged(path, f"its member {member.name!r} is a link or a device")
            file = tar.extractfile(member)
            data = b"" if file is None else file.read()
            if len(data) != member.size:
                raise Damaged(path, f"ends inside its member {member.name!r}")
            yield name, data


def extract_tar(path: Path, target: Path, folder: str) -> None:
    """Unpack `folder` of the archive as `target/folder`, all of it or nothing; files already there stay as they are."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".unpacking-") as temporary:
        for name, data in tar_members(path, MAX_UNPACKED):
            destination = Path(temporary, name)
            try:
                destination.parent.mkdir(parents=True, exist_ok=True)
                destination.write_bytes(data)
            except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                raise Damaged(path, f"its member {str(name)!r} is both a file and a folder") from error
        unpacked = Path(temporary, folder)
        if not unpacked.is_dir():
            raise Damaged(path, f"holds no folder {folder!r}")
        (target / folder).mkdir(exist_ok=True)
        for file in unpacked.iterdir():
            destination = target / folder / file.name
            if file.is_file() and not destination.is_file():
                os.replace(file, destination)
