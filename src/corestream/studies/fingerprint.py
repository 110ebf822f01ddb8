"""What a folder of pictures holds, as a short text: changed pictures are other data, and so another run."""

import os
from pathlib import Path

from corestream.errors import ConfigError
from corestream.studies.files import canonical, sha256

Content = dict[str, dict[str, int | None]]


def fingerprint(folder: Path) -> str:
    """Of the classes' names and their files' names and sizes: no picture is read, and a copy of the folder has the same."""
    halves = [folder / "train", folder / "test"]
    roots = halves if all(half.is_dir() for half in halves) else [folder]
    try:
        return sha256(canonical([_content(root) for root in roots]))[:16]
    except OSError as error:
        raise ConfigError(f"the pictures in {folder} cannot be listed: {error}") from error


def _content(root: Path) -> Content:
    return {
        folder.name: {file.name: _size(file) for file in _visible(folder.path) if not file.is_dir()}
        for folder in _visible(root)
        if folder.is_dir()
    }


def _visible(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".")]


def _size(file: os.DirEntry[str]) -> int | None:
    try:
        return file.stat().st_size
    except OSError:  # a link to nowhere, which the stream skips as well
        return None
