"""Fetching a file: publisher first, mirrors after, by https, kept only when its checksum is the known one."""

import sys
from pathlib import Path
from typing import Any

from corestream.errors import DataError
from corestream.streams.datasets.archives import extract_tar
from corestream.streams.datasets.source import Download, Source

TIMEOUT_SECONDS = 30


def fetch(source: Source, root: Path, *, schemes: tuple[str, ...] = ("https",)) -> list[Path]:
    """Get what is missing of a dataset. The files already there stay as they are."""
    missing = set(source.missing(root))
    fetched = []
    for download in source.downloads:
        made = [file for file in missing if file == download.path or file.startswith(f"{download.unpack}/")]
        if made:
            fetched.append(_fetch_one(download, root, schemes))
    return fetched


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
            target.unlink()
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
        downloader = pooch.HTTPDownloader(
            progressbar=bar, timeout=TIMEOUT_SECONDS, hooks={"response": refuse_other_schemes}
        )
        pooch.retrieve(url, checksum, fname=target.name, path=target.parent, downloader=downloader)


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
        self._progress.stop()

    def update(self, amount: int) -> None:
        self._progress.update(self._task, total=self.total or None, advance=amount)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.refresh()
