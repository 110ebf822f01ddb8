"""Fetching a file: publisher first, mirrors after, by https, kept only when its checksum is the known one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corestream.errors import DataError
from corestream.streams.datasets.archives import extract_tar
from corestream.streams.datasets.source import Download, Source

TIMEOUT_SECONDS = 30


def fetch(source: Source, root: Path, *, schemes: tuple[str, ...] = ("https",)) -> list[Path]:
    """Get what is missing of a dataset. The files already there stay as they are."""
    fetched = []
    for download in source.downloads:
        with _alone_in((root / download.path).parent):
            missing = source.missing(root)  # asked in our turn: another process may have fetched them
            if any(file == download.path or file.startswith(f"{download.unpack}/") for file in missing):
                fetched.append(_fetch_one(download, root, schemes))
    return fetched


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time fetches into a folder; the lock ends with its holder.

    Where nothing can be locked, as on Windows and some network drives, they fetch side by side.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: the folder cannot be made ({error.strerror})") from error
    descriptor = None
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except (ImportError, OSError):
        pass
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _fetch_one(download: Download, root: Path, schemes: tuple[str, ...]) -> Path:
    target = root / download.path
    failures = []
    for url in download.urls:
        try:
            _retrieve(url, download.checksum, target, schemes)
        # requests' errors are OSErrors; a wrong checksum is a ValueError
        except (OSError, ValueError) as error:
            failures.append(f"  {url}: {_first_line(error)}")
            continue
        if download.unpack:
            extract_tar(target, root, download.unpack)
            target.unlink(missing_ok=True)  # without a lock, another process may have been first
        return target
    raise DataError(
        f"{download.path} could not be fetched into {root}:\n" + "\n".join(failures) + "\n"
        f"Try again later, or put the file there yourself ({download.checksum})."
    )


def _retrieve(url: str, checksum: str, target: Path, schemes: tuple[str, ...]) -> None:
    _check_scheme(url, schemes)
    if not checksum:
        raise ValueError("no checksum is known for it")
    import pooch

    def refuse_other_schemes(response: Any, *_: Any, **__: Any) -> None:
        if response.is_redirect:
            location = response.headers.get("location", "")
            if "://" in location:
                _check_scheme(location, schemes)

    pooch.get_logger().setLevel("WARNING")
    with progress_bar(target.name) as bar:
        download = pooch.HTTPDownloader(
            progressbar=bar, timeout=TIMEOUT_SECONDS, hooks={"response": refuse_other_schemes}
        )

        def download_as_usual(url: str, output: str, *rest: Any) -> None:
            os.unlink(output)  # made for its owner alone; a new one has the umask's mode
            download(url, output, *rest)

        pooch.retrieve(url, checksum, fname=target.name, path=target.parent, downloader=download_as_usual)


def _check_scheme(url: str, schemes: tuple[str, ...]) -> None:
    if url.partition("://")[0].lower() not in schemes:
        raise ValueError(f"refused: only {', '.join(schemes)} is allowed")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class progress_bar:
    """A rich progress bar with the few methods pooch asks for; it draws only on a terminal."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty())
        self._task = self._progress.add_task(title, total=None)
        self.total = 0

    def __enter__(self) -> "progress_bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if (
            not self._progress.disable
        ):  # some versions of rich end even what they do not show with an empty line
            self._progress.stop()

    def update(self, amount: int) -> None:
        self._progress.update(self._task, total=self.total or None, advance=amount)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.refresh()
