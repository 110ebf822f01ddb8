"""Launches captured steps of several runs in turn, from a thread of its own.

A card's queue is short: it would run dry whenever one run closes a task.
"""

import sys
import threading
from dataclasses import dataclass

import torch

IN_A_ROW = 4  # launches for one run before the next one's turn: a long row fills the queue with one run alone
SWITCH = 1e-4  # seconds the other thread may compute on before a launch gets its turn


@dataclass
class Job:
    """So many launches of a graph on a stream; `error` is what went wrong with one."""

    graph: torch.cuda.CUDAGraph
    stream: torch.cuda.Stream
    left: int
    error: Exception | None = None


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
            for job in jobs:
                self._launch(job)

    @staticmethod
    def _launch(job: Job) -> None:
        try:
            with torch.cuda.stream(job.stream):
                for _ in range(min(IN_A_ROW, job.left)):
                    job.graph.replay()
                    job.left -= 1
        except Exception as error:
            job.error = error
