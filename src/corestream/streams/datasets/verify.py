"""Checking the files that are there: published, whole but not the published ones, damaged or missing."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from corestream.errors import DataError
from corestream.streams.datasets.reading import Damaged, reading
from corestream.streams.datasets.source import Source

PUBLISHED = "published"
OTHER = "whole, but not the published one"
DAMAGED = "damaged"
MISSING = "missing"
UNKNOWN = "not the published one; another file of the set must be repaired first"


@dataclass(frozen=True)
class Verdict:
    file: str
    state: str
    detail: str = ""


def verify(source: Source, root: Path) -> list[Verdict]:
    """A verdict on every file of a dataset. Files that are not the published ones are read to the end."""
    states = {file: _by_checksum(root / file, md5) for file, md5 in source.files.items()}
    details = dict.fromkeys(states, "")
    if OTHER in states.values():
        try:
            source.read(root)
        except Damaged as error:
            file = error.path.relative_to(root).as_posix()
            states[file], details[file] = DAMAGED, error.reason
        except DataError as error:
            details = {name: str(error) if state == MISSING else "" for name, state in states.items()}
        if not {DAMAGED, MISSING}.isdisjoint(states.values()):
            states = {file: UNKNOWN if state == OTHER else state for file, state in states.items()}
    return [Verdict(file, state, details[file]) for file, state in states.items()]


def _by_checksum(path: Path, md5: str) -> str:
    if not path.is_file():
        return MISSING
    with reading(path), open(path, "rb") as file:
        return PUBLISHED if hashlib.file_digest(file, "md5").hexdigest() == md5 else OTHER
