"""Many runs in worker processes of one torch thread each.

A run that fails, is killed or runs out of memory is recorded, and the others go on.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from corestream.errors import ConfigError
from corestream.studies.config import RunConfig
from corestream.studies.drive import Options, Progress
from corestream.studies.events import EventLog
from corestream.studies.locks import LockedError
from corestream.studies.stopping import Interrupted, StopRequest

OutcomeStatus = Literal["done", "diverged", "failed", "locked", "interrupted"]
ENDING_SECONDS = 90.0  # for the last step and checkpoint of the runs at work
TAIL_CHARACTERS = 4000


def _has_current_folder() -> bool:
    with suppress(OSError):  # the folder is gone
        return os.getcwd() in map(os.path.abspath, sys.path)
    return False


# A worker looks for modules in the current folder only where this process did from its start: a queue.py there is none of Python's.
# Not asked later, when files of the user's own have put their folders on the path; a worker does that anew, after its own imports.
PATH_FLAGS = [] if _has_current_folder() else ["-P"]


@dataclass(frozen=True)
class Outcome:
    """What became of a run; `locked` is one that another process is making."""

    config: RunConfig
    status: OutcomeStatus
    error: str = ""
    cause: Exception | None = field(default=None, compare=False, repr=False)  # where it is of this process
    refused: bool = False  # for what its configuration says
    accuracy: float | None = None  # the average at its end


def ended(config: RunConfig, result: Mapping[str, Any]) -> Outcome:
    """The outcome of a run that has a result: it is done, or has diverged."""
    return Outcome(config, result["status"], result["note"], accuracy=result["average_accuracy"])


class Watcher:
    """Is told what happens, from several threads but one call at a time; does nothing unless overridden."""

    def began(self, config: RunConfig) -> None: ...
    def progressed(self, config: RunConfig, progress: Progress) -> None: ...
    def ended(self, outcome: Outcome) -> None: ...
    def fell_back(self, config: RunConfig, reason: str) -> None: ...
    def warned(self, config: RunConfig, text: str) -> None: ...


def make_runs(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    jobs: int,
    options: Options | None = None,
    watcher: Watcher | None = None,
) -> list[Outcome]:
    """Make the runs in `jobs` worker processes. SIGINT and SIGTERM raise Interrupted after checkpoints."""
    pool = _Pool(configs, out, options or Options(), watcher or Watcher())
    with StopRequest() as stop:
        pool.start(min(jobs, len(configs)))
        while pool.working():
            if stop.signum is not None:
                pool.end()
                raise Interrupted(
                    stop.signum, "interrupted; the same command continues the runs that were at work"
                )
    return pool.outcomes


class _Pool:
    def __init__(self, configs: Sequence[RunConfig], out: Path, options: Options, watcher: Watcher) -> None:
        self.outcomes: list[Outcome] = []
        self._out, self._options, self._watcher = out, options, watcher
        self._waiting = deque(configs)
        self._guard = threading.Lock()
        self._ending = False
        self._workers: dict[int, _Worker] = {}
        self._threads: list[threading.Thread] = []

    def start(self, jobs: int) -> None:
        self._threads = [threading.Thread(target=self._serve, args=(slot,)) for slot in range(jobs)]
        for thread in self._threads:
            thread.start()

    def working(self) -> bool:
        """Waits a moment; False once every run has its outcome."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=0.1)
                return True
        return False

    def end(self) -> None:
        """Ask every worker for a checkpoint and wait until they are gone."""
        with self._guard:
            self._ending = True
            self._waiting.clear()
            for worker in self._workers.values():
                worker.ask_to_end()
        for thread in self._threads:
            thread.join(timeout=ENDING_SECONDS)
        with self._guard:
            for worker in self._workers.values():
                worker.process.kill()

    def _serve(self, slot: int) -> None:
        """One slot: its worker makes one run after the other, and is replaced when it dies."""
        try:
            while (config := self._next()) is not None:
                try:
                    worker = self._worker(slot)
                    if worker is None:
                        break
                    self._tell(partial(self._watcher.began, config))
                    outcome = self._one(worker, config)
                except Exception as error:  # no room for another process, say: the others may still be made
                    outcome = Outcome(config, "failed", f"{type(error).__name__}: {error}")
                self._note(outcome)
        finally:
            with self._guard:
                worker = self._workers.pop(slot, None)
            if worker is not None:
                worker.close()

    def _next(self) -> RunConfig | None:
        with self._guard:
            return self._waiting.popleft() if self._waiting else None

    def _worker(self, slot: int) -> "_Worker | None":
        with self._guard:
            if self._ending:
                return None
            worker = self._workers.get(slot)
            if worker is None or worker.process.poll() is not None:
                worker = self._workers[slot] = _Worker()
            return worker

    def _one(self, worker: "_Worker", config: RunConfig) -> Outcome:
        for news in worker.make(config, self._out, self._options):
            if news["news"] == "progress":
                progress = Progress(**news["progress"])
                self._tell(partial(self._watcher.progressed, config, progress))
            elif news["news"] == "warning":
                self._tell(partial(self._watcher.warned, config, news["text"]))
            elif news["news"] == "result":
                return ended(config, news["result"])
            elif news["news"] == "failed":
                status: OutcomeStatus = "locked" if news["type"] == LockedError.__name__ else "failed"
                refused = news["type"] == ConfigError.__name__
                return Outcome(config, status, news["error"], refused=refused)
        if self._ending:
            return Outcome(config, "interrupted")
        return Outcome(config, "failed", self._record_death(worker, config))

    def _record_death(self, worker: "_Worker", config: RunConfig) -> str:
        """A killed process cannot write why it ended; its parent does."""
        error = worker.death()
        folder = self._out / config.digest()
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            EventLog(folder).write("failed", error=error, traceback=worker.last_words())
        return error

    def _note(self, outcome: Outcome) -> None:
        with self._guard:
            self.outcomes.append(outcome)
        self._tell(partial(self._watcher.ended, outcome))

    def _tell(self, call: Callable[[], None]) -> None:
        with self._guard:
            call()


class _Worker:
    """A process of `corestream.studies.worker`. Its stdin is held open here only: it ends with this one."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self.process = subprocess.Popen(
            [sys.executable, *PATH_FLAGS, "-m", "corestream.studies.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # a terminal's Ctrl-C reaches the parent alone, which asks in order
        )

    def make(self, config: RunConfig, out: Path, options: Options) -> Iterator[dict[str, Any]]:
        """Yields the news of one run; ends early where the process dies."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        plain = {**asdict(options), "data_dir": None if options.data_dir is None else str(options.data_dir)}
        order = {"config": config.to_dict(), "out": str(out), "options": plain}
        with suppress(OSError):  # a worker that died is found out by the end of its news
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if not line.endswith("\n"):  # it was killed while it wrote
                return
            yield json.loads(line)

    def ask_to_end(self) -> None:
        with suppress(OSError):
            self.process.terminate()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self._errors.close()

    def death(self) -> str:
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "the run's process was killed by SIGKILL; the system does so when memory runs out"
        lines = self.last_words().split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        words = f"; its last words: {last}" if last else ""
        if code < 0:
            return f"the run's process was killed by {signal.Signals(-code).name}{words}"
        return f"the run's process ended with exit status {code}{words}"

    def last_words(self) -> str:
        self._errors.seek(0, 2)
        self._errors.seek(max(0, self._errors.tell() - TAIL_CHARACTERS))
        return self._errors.read().decode(errors="replace")
