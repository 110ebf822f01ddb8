"""What a folder of pictures holds, or a file of code, as a short text: changed pictures or code are another run."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

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


def code_of(thing: Any) -> str:
    """Of the file that defines a class or a function of the user's own; empty for corestream's, and where there is no file."""
    while isinstance(thing, partial):
        thing = thing.func
    name = getattr(thing, "__module__", None) or type(thing).__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or not Path(file).is_file() or name.partition(".")[0] == "corestream":
        return ""
    return sha256(Path(file).read_bytes())[:16]


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
