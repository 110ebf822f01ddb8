"""events.jsonl: what happened in a run and when. Appended only, so that a restart can be seen."""

import errno
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from corestream.errors import RunError
from corestream.studies.files import parse_json

NAME = "events.jsonl"


class EventLog:
    """One JSON object a line, each with its name and its time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._end_torn_line()

    def write(self, event: str, **facts: Any) -> None:
        line = (json.dumps({"event": event, "time": round(time.time(), 3), **facts}) + "\n").encode()
        with open(self.path, "ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            except OSError:  # a full disk takes half of it, and the next one would be glued to that
                with suppress(OSError):
                    file.truncate(before)
                raise

    def _end_torn_line(self) -> None:
        """A killed process may leave half a line; the next event must not be glued to it."""
        if not self.path.exists():
            return
        with open(self.path, "rb+") as file:
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
                os.fsync(file.fileno())


def read_events(folder: Path) -> list[dict[str, Any]]:
    """Every whole event; a half last line is left out, any other damage is a RunError naming the line."""
    path = folder / NAME
    try:
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    return [_parse(path, number, line) for number, line in enumerate(lines[:-1], 1)]


def seconds_in_task(folder: Path, step: int) -> float:
    """How long the task that was open at a checkpoint had been worked on by then."""
    try:
        events = read_events(folder)
    except RunError:  # whoever reads the result is told; a run that could go on does
        return 0.0
    spent = [event.get("task_seconds") for event in events if _is_checkpoint(event, step)]
    return float(spent[-1]) if spent and isinstance(spent[-1], int | float) else 0.0


def _is_checkpoint(event: dict[str, Any], step: int) -> bool:
    return event["event"] == "checkpoint" and event.get("step") == step


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        event = parse_json(line)
    except ValueError as error:
        raise RunError(
            f"{path}, line {number} is damaged ({error}); remove the line or the run's folder"
        ) from error
    if not isinstance(event.get("event"), str):
        raise RunError(f"{path}, line {number} names no event; remove the line or the run's folder")
    return event
