"""SIGINT and SIGTERM end a run at its next step, after a clean checkpoint."""

import signal
import threading
import time
from types import FrameType
from typing import Any

from corestream.errors import RunError

# `timeout` and job schedulers tell a process and then its group, which it is in: that is one request
TOLD_TWICE_SECONDS = 0.2


class Interrupted(RunError):
    """The run was asked to end and has written its checkpoint; the same command continues it."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum

    @property
    def exit_status(self) -> int:
        return 128 + self.signum


class StopRequest:
    """`with StopRequest() as stop:` turns the first signal into `stop.signum`; a second one acts as ever."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python forbids handlers
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def request(self, signum: int = signal.SIGTERM) -> None:
        self.signum = signum

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.request(signum)
        for number in self._before:
            signal.signal(number, _pass_over)  # not SIG_IGN, which a process started just now would inherit
        time.sleep(TOLD_TWICE_SECONDS)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


def _pass_over(signum: int, frame: FrameType | None) -> None:
    """The same request once more."""
