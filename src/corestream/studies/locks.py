"""One process per run: a lock of the operating system, which dies with its holder."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corestream.errors import RunError


class LockedError(RunError):
    """Another process is working on this run."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or raise LockedError at once.

    The file stays, unless its holder removes the whole folder: who had opened it before then holds a removed file, and is refused too.
    """
    path = folder / "lock"
    with open(path, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LockedError(
                f"another process {_holder(path)}is already working on the run in {folder}; "
                "wait for it, or end it and start again"
            ) from error
        if not _is_same(file.fileno(), path):
            raise LockedError(f"another process has just removed {folder}; start again")
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        file.flush()
        yield


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes())
        return f"(pid {int(holder['pid'])} on {holder['host']}) "
    except (OSError, ValueError, KeyError, TypeError):  # it has not written its name yet
        return ""
