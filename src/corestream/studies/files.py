"""Files that are whole or not there: written beside, synced, renamed; read with one clean error."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corestream.errors import RunError


def write_atomically(path: Path, content: bytes) -> None:
    """After a crash at any moment `path` holds the old content or the new one, never a part of either."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # a full disk names no file, others the one beside
        raise


def write_text(path: Path, text: str) -> None:
    """A page for readers; a folder's name that is not valid in the locale is in it with a ? for what cannot be written."""
    write_atomically(path, text.encode(errors="replace"))


def sync_folder(folder: Path) -> None:
    """Make the renames inside a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def canonical(value: Any) -> bytes:
    """The same JSON bytes for the same value: what digests and checksums are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; a RunError names a file that cannot be read or holds no object."""
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}); remove {path.parent} to make this run again") from error


def parse_json(content: bytes) -> dict[str, Any]:
    """The object in JSON bytes; anything else is a ValueError."""
    try:
        value = json.loads(content)
    except RecursionError as error:  # a hostile file may nest deeper than the parser can go
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"holds a {type(value).__name__}, not an object")
    return value
