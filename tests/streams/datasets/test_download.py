import errno
import hashlib
import io
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from corestream.errors import DataError
from corestream.streams.datasets import SOURCES, load
from corestream.streams.datasets.download import fetch, progress_bar
from corestream.streams.datasets.source import Download, Source


class Mirror(BaseHTTPRequestHandler):
    files: dict[str, bytes] = {}  # noqa: RUF012
    redirects: dict[str, str] = {}  # noqa: RUF012
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path in self.redirects:
            self.send_response(302)
            self.send_header("Location", self.redirects[self.path])
            self.end_headers()
        elif self.path in self.files:
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.files[self.path])))
            self.end_headers()
            self.wfile.write(self.files[self.path])
        else:
            self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[str]:
    Mirror.files, Mirror.redirects, Mirror.asked = {}, {}, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def md5(data: bytes) -> str:
    return "md5:" + hashlib.md5(data).hexdigest()


def one_file(*urls: str, data: bytes = b"content") -> Source:
    download = Download("set/file", urls, md5(data))
    return Source("set", "", SOURCES["digits"].read, files={"set/file": ""}, downloads=(download,))


fetch_here = partial(fetch, schemes=("http",))  # the test's server has no certificate


def test_the_publisher_is_asked_first(mirror: str, tmp_path: Path) -> None:
    Mirror.files = {"/first": b"content", "/second": b"content"}
    fetch_here(one_file(f"{mirror}/first", f"{mirror}/second"), tmp_path)
    assert (tmp_path / "set/file").read_bytes() == b"content"
    assert Mirror.asked == ["/first"]


def test_a_mirror_steps_in_for_a_dead_link_and_for_wrong_bytes(mirror: str, tmp_path: Path) -> None:
    Mirror.files = {"/wrong": b"<html>moved</html>", "/good": b"content"}
    fetch_here(one_file(f"{mirror}/dead", f"{mirror}/wrong", f"{mirror}/good"), tmp_path)
    assert (tmp_path / "set/file").read_bytes() == b"content"
    assert Mirror.asked == ["/dead", "/wrong", "/good"]


def test_wrong_bytes_are_never_kept(mirror: str, tmp_path: Path) -> None:
    Mirror.files = {"/wrong": b"something else"}
    with pytest.raises(DataError, match="could not be fetched") as caught:
        fetch_here(one_file(f"{mirror}/wrong", f"{mirror}/dead"), tmp_path)
    assert f"{mirror}/wrong" in str(caught.value)
    assert f"{mirror}/dead" in str(caught.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_only_https_is_used(mirror: str, tmp_path: Path) -> None:
    Mirror.files = {"/first": b"content"}
    with pytest.raises(DataError, match="only https"):
        fetch(one_file(f"{mirror}/first"), tmp_path)
    assert Mirror.asked == []


def test_a_redirect_to_another_scheme_is_refused(mirror: str, tmp_path: Path) -> None:
    Mirror.redirects = {"/first": "ftp://example.org/file"}
    with pytest.raises(DataError, match="only http"):
        fetch_here(one_file(f"{mirror}/first"), tmp_path)


def test_a_file_without_a_known_checksum_is_not_fetched(mirror: str, tmp_path: Path) -> None:
    source = one_file(f"{mirror}/first")
    source = replace(source, downloads=(replace(source.downloads[0], checksum=""),))
    with pytest.raises(DataError, match="no checksum"):
        fetch_here(source, tmp_path)
    assert Mirror.asked == []


@pytest.fixture
def tar_set(mirror: str, publisher) -> Source:
    archive = publisher.tar("a.tar.gz", {"cifar/train": b"abc", "cifar/meta": b"d"}).read_bytes()
    Mirror.files = {"/a.tar.gz": archive}
    download = Download("a.tar.gz", (f"{mirror}/a.tar.gz",), md5(archive), unpack="cifar")
    files = {"cifar/train": "", "cifar/meta": ""}
    return Source("cifar", "", SOURCES["digits"].read, files=files, downloads=(download,))


def names_under(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_an_archive_is_unpacked_and_not_kept(tar_set: Source, tmp_path: Path) -> None:
    fetch_here(tar_set, tmp_path / "to")
    assert names_under(tmp_path / "to") == ["meta", "train"]


def test_what_is_there_of_an_archive_is_left_alone(tar_set: Source, tmp_path: Path) -> None:
    (tmp_path / "cifar").mkdir()
    (tmp_path / "cifar/train").write_bytes(b"a sample")
    fetch_here(tar_set, tmp_path)
    assert (tmp_path / "cifar/train").read_bytes() == b"a sample"
    assert (tmp_path / "cifar/meta").read_bytes() == b"d"


def test_of_several_that_fetch_at_once_one_downloads(tar_set: Source, tmp_path: Path) -> None:
    with ThreadPool(4) as pool:
        fetched = pool.map(lambda _: fetch_here(tar_set, tmp_path / "to"), range(4), chunksize=1)
    assert sorted(map(len, fetched)) == [0, 0, 0, 1]
    assert Mirror.asked == ["/a.tar.gz"]
    assert names_under(tmp_path / "to") == ["meta", "train"]


def test_a_drive_without_locks_is_fetched_into(
    tar_set: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    fetch_here(tar_set, tmp_path / "drive")
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    fetch_here(tar_set, tmp_path / "windows")
    assert names_under(tmp_path / "drive") == names_under(tmp_path / "windows") == ["meta", "train"]


def test_a_folder_that_cannot_be_made_is_named(mirror: str, tmp_path: Path) -> None:
    (tmp_path / "set").write_text("a file")
    with pytest.raises(DataError, match=r"set: the folder cannot be made \(File exists\)"):
        fetch_here(one_file(f"{mirror}/first"), tmp_path)


def test_a_fetched_file_may_be_read_by_those_the_umask_allows(mirror: str, tmp_path: Path) -> None:
    Mirror.files = {"/first": b"content"}
    before = os.umask(0o027)
    try:
        fetch_here(one_file(f"{mirror}/first"), tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "set/file").stat().st_mode & 0o777 == 0o640


def test_files_already_there_are_left_alone(mirror: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file").write_bytes(b"a sample")
    assert fetch_here(one_file(f"{mirror}/first"), tmp_path) == []
    assert (tmp_path / "set/file").read_bytes() == b"a sample"
    assert Mirror.asked == []


def test_the_progress_bar_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar("train.gz") as bar:
        bar.total = 4_000_000
        bar.update(1_000_000)
        bar.close()
    assert "train.gz" in terminal.getvalue()
    assert "1.0/4.0 MB" in terminal.getvalue()


def test_every_published_address_is_https_with_a_checksum() -> None:
    for source in SOURCES.values():
        for download in source.downloads:
            assert all(url.startswith("https://") for url in download.urls)
            assert len(download.checksum.removeprefix("md5:")) == 32


def test_every_file_of_every_dataset_can_be_fetched() -> None:
    for source in SOURCES.values():
        for file in source.files:
            made = [
                d
                for d in source.downloads
                if d.path == file or (d.unpack and file.startswith(f"{d.unpack}/"))
            ]
            assert len(made) == 1, file


def test_offline_never_asks_and_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("mnist", data_dir=tmp_path, offline=True)
    message = str(caught.value)
    assert str(tmp_path / "mnist/train-images-idx3-ubyte.gz") in message
    assert f"corestream data fetch mnist --data-dir {tmp_path}" in message
