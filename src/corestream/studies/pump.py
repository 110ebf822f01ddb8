"""Launches captured steps of several runs in turn, from a thread of its own.

A run's launches would otherwise stop whenever another run closes a task. Each run has few of them under way: a full queue makes everybody
who wants the card wait behind it, and the thread that closes tasks with them. That thread also waits at each launch and each look at
the card, since only one of the two computes at a time: so there is one look for a bundle of launches, and none before it is worth it.
"""

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field

import torch

PAUSE = 5e-4  # seconds until the next look, where the card has enough to do
SWITCH = 1e-4  # seconds the other thread may compute on before a launch gets its turn
UNDER_WAY = 2  # bundles of a job
LATER = 1 / 8  # of a bundle's age is waited until the next look at it


@dataclass
class Job:
    """So many launches of a graph on a stream, `bundle` of them at a time; `error` is what went wrong with one."""

    graph: torch.cuda.CUDAGraph
    stream: torch.cuda.Stream
    left: int
    bundle: int = 1
    error: Exception | None = None
    _under_way: deque[tuple[torch.cuda.Event, float]] = field(default_factory=deque)  # and since when
    _look_at: float = 0.0

    def launch(self) -> bool:
        """The next bundle; False where none is left, or the card has enough of them."""
        if not self.left or self.error is not None:
            return False
        try:
            now = time.monotonic()
            if len(self._under_way) < UNDER_WAY:
                over = torch.cuda.Event()
            elif now >= self._look_at and self._under_way[0][0].query():
                over, _ = self._under_way.popleft()
            else:
                if now >= self._look_at:
                    self._look_at = now + LATER * (now - self._under_way[0][1])
                return False
            count = min(self.bundle, self.left)
            with torch.cuda.stream(self.stream):
                for _ in range(count):
                    self.graph.replay()
                over.record()
            self._under_way.append((over, now))
            self.left -= count
        except Exception as error:
            self.error = error
        return True


class Pump:
    """Started with the first job; leaving the context ends it, with jobs that are under way left undone."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._open = True
        self._switch = sys.getswitchinterval()

    def __enter__(self) -> "Pump":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._open = False
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            torch.cuda.synchronize()  # no graph may go before its last launch is over
            sys.setswitchinterval(self._switch)

    def add(self, job: Job) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        if self._thread is None:
            sys.setswitchinterval(SWITCH)
            self._thread = threading.Thread(target=self._work, name="launches", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._jobs = [job for job in self._jobs if job.left and job.error is None]
                while self._open and not self._jobs:
                    self._changed.wait()
                if not self._open:
                    return
                jobs = list(self._jobs)
            launched = [job.launch() for job in jobs]  # each gets its turn
            del jobs  # no graph is held on to while this waits
            if not any(launched):
                time.sleep(PAUSE)
