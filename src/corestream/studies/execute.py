"""A run from its configuration to its result: the lock, the files, the signals, and what became of it."""

import errno
import shutil
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor

from corestream.errors import (
    ConfigError,
    CorestreamError,
    CorestreamWarning,
    DataError,
    NonFiniteError,
    RunError,
)
from corestream.gradients.calling import leaves
from corestream.plugins import LIBRARIES
from corestream.studies import checkpoint
from corestream.studies.accuracy import check_accuracy
from corestream.studies.config import FORMAT, RunConfig, read_config
from corestream.studies.drive import Driver, Options, Report
from corestream.studies.environment import environment, prepare_device
from corestream.studies.events import EventLog, read_events
from corestream.studies.files import read_json, write_atomically, write_json
from corestream.studies.locks import locked
from corestream.studies.loggers import let_go, make_loggers
from corestream.studies.run import Run, make_run
from corestream.studies.stopping import Interrupted, StopRequest

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def execute(
    config: RunConfig,
    out: Path,
    options: Options | None = None,
    *,
    report: Report | None = None,
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Make the run, or finish it, or find it made; returns the content of its accuracy.json.

    A run that diverges is a result, marked as such; any other failure is recorded in events.jsonl and raised. A configuration
    or dataset that is refused before the first step leaves no folder.
    """
    folder = out / config.digest()
    found = read_accuracy(folder, config)
    if found is not None:
        return found
    with system_errors_told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # who hands in a stop request has set up its signals already
        with locked(folder), nullcontext(stop) if stop else StopRequest() as request:
            found = read_accuracy(folder, config)  # another process may have ended it meanwhile
            return found or _recorded(config, folder, options or Options(), report, request)


@contextmanager
def system_errors_told(folder: Path) -> Iterator[None]:
    """An error of the operating system becomes one that names the run it stopped, and what to do."""
    try:
        yield
    except OSError as error:
        room = "; make room and start the same command again" if error.errno in DISK_FULL else ""
        raise RunError(f"the run in {folder} stopped: {error}{room}") from error


def read_accuracy(folder: Path, whose: RunConfig | str | None = None) -> dict[str, Any] | None:
    """What a finished or diverged run found, None where it is not finished; damage is a RunError.

    `whose` is the configuration, or its digest, that the result must belong to; another one's is an error too.
    """
    path = folder / "accuracy.json"
    if not path.exists():
        return None
    found = read_json(path)
    try:
        if (status := found.get("status")) not in ("done", "diverged"):
            raise ValueError(f"its status is {status!r}")
        check_accuracy(found, status)
    except ValueError as error:
        raise RunError(
            f"{path} is not a run's result ({error}); remove {folder} to make this run again"
        ) from error
    digest = whose.digest() if isinstance(whose, RunConfig) else whose
    if digest is not None and found.get("digest") != digest:
        raise RunError(f"{path} belongs to another configuration ({found.get('digest')}); remove {folder}")
    return found


def read_memory(folder: Path) -> dict[str, Tensor]:
    """What a run kept: inputs, targets, tasks and ids (places in the task's training set), or nothing."""
    path = folder / "memory.safetensors"
    try:
        return parse_tensors(path.read_bytes()) if path.exists() else {}
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"{path} is damaged ({error}); remove {folder} to make this run again") from error


def _recorded(
    config: RunConfig, folder: Path, options: Options, report: Report | None, stop: StopRequest
) -> dict[str, Any]:
    """The work, with its end written into events.jsonl whichever it is."""
    events = EventLog(folder)
    try:
        return _work(config, folder, options, events, report, stop)
    except Interrupted as interruption:
        events.write("interrupted", signal=interruption.signum)
        raise
    except (KeyboardInterrupt, SystemExit):  # a second signal, which waits for nothing
        with suppress(OSError):
            events.write("interrupted")
        raise
    except (ConfigError, DataError):
        raise  # noted
    except BaseException as error:
        note_failure(events, error)
        raise


def _work(
    config: RunConfig,
    folder: Path,
    options: Options,
    events: EventLog,
    report: Report | None,
    stop: StopRequest,
) -> dict[str, Any]:
    fresh, run = is_fresh(folder), None
    try:
        run = begin(config, folder, options, events)
        return _drive(run, options, events, report, stop)
    except (ConfigError, DataError) as error:
        note_failure(events, error)  # first, for once it is discarded the folder may be another process's
        if fresh and (run is None or run.position.step == 0):
            discard(folder)
        raise


def _drive(
    run: Run, options: Options, events: EventLog, report: Report | None, stop: StopRequest
) -> dict[str, Any]:
    loggers = make_loggers(options.loggers, run.config, run.folder)
    try:
        Driver(run, options, events, stop, report, loggers).drive()
    except NonFiniteError as error:
        return end(run, events, "diverged", str(error))
    finally:
        for logger in loggers:
            let_go(logger, lambda words: events.write("not logged", error=words))
    return end(run, events, "done", "")


def begin(config: RunConfig, folder: Path, options: Options, events: EventLog) -> Run:
    """The run of a configuration, ready for its next step: the first one, or the one after its last checkpoint.

    Whoever calls holds the folder's lock, and discards the folder of a run that is refused.
    """
    _settle_threads(folder, options)
    prepare_device(config.device, config.deterministic)
    _write_config(config, folder)
    run = make_run(config, folder, data_dir=options.data_dir, offline=options.offline)
    _resume(run, events)
    return run


def is_fresh(folder: Path) -> bool:
    """Whether nobody has written anything there but the lock."""
    return all(path.name == "lock" for path in folder.iterdir())


def discard(folder: Path) -> None:
    """Remove what a refused run has written, the lock last: from then on the folder may be another process's."""
    with suppress(OSError):  # what cannot be removed stays, and the refusal is told all the same
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()
        (folder / "lock").unlink()
        folder.rmdir()


def end(run: Run, events: EventLog, status: str, note: str) -> dict[str, Any]:
    """Write what the run found; returns the content of its accuracy.json."""
    run.records.flush()
    result = _result(run, status, note)
    _write_memory(run)
    write_json(run.folder / "accuracy.json", result)
    checkpoint.keep_newest(run.folder / "checkpoint")
    events.write(result["status"], step=run.position.step, note=result["note"])
    return result


def note_failure(events: EventLog, error: BaseException) -> None:
    with suppress(OSError):  # the disk may be what failed, and a refused run has no folder any more
        trace = "".join(traceback.format_exception(error))
        events.write("failed", error=described(error), traceback=trace)


def described(error: BaseException) -> str:
    """An error in one line; where it is of the program, with the last place in it that is no library's."""
    words = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, CorestreamError) or not frames:
        return words
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    last = (own or frames)[-1]
    return f"{words} ({Path(last.filename).name}:{last.lineno})"


def _settle_threads(folder: Path, options: Options) -> None:
    """As many threads as the run began with: their number decides the order of sums, so the last bits, and with them what is picked."""
    threads = options.threads
    if (folder / "config.json").exists():
        _, began = read_config(folder / "config.json")
        threads = began.get("threads", threads)
    if threads is not None:
        torch.set_num_threads(threads)


def _write_config(config: RunConfig, folder: Path) -> None:
    path = folder / "config.json"
    if not path.exists():
        record = {
            "digest": config.digest(),
            "format": FORMAT,
            "config": config.to_dict(),
            "environment": environment(config.device),
        }
        write_json(path, record)
    elif read_config(path)[0] != config:
        raise RunError(f"{path} holds another configuration than its folder is named after; remove {folder}")


def _resume(run: Run, events: EventLog) -> None:
    """From the last checkpoint where there is one; a run that lost them all never starts over in silence."""
    saved = run.restore()
    if saved is not None:
        place = {"step": run.position.step, "task": run.position.task}
        events.write(
            "resumed", **place, passed_over=saved.passed_over, environment=environment(run.config.device)
        )
        if saved.passed_over:
            warnings.warn(
                f"{run.folder} goes on from an older checkpoint, at step {run.position.step}: {'; '.join(saved.passed_over)}",
                CorestreamWarning,
                stacklevel=2,
            )
    elif any(event["event"] == "checkpoint" for event in read_events(run.folder)):
        raise RunError(
            f"the run in {run.folder} had written checkpoints, and they are gone; "
            "remove that folder to make this run again from the start"
        )
    else:
        events.write("started")


def _result(run: Run, status: str, note: str) -> dict[str, Any]:
    """accuracy.json: only what two equal runs share bit for bit."""
    config, ledger = run.config, run.ledger
    averages = ledger.averages() if status == "done" else dict.fromkeys(ledger.averages())
    return {
        "digest": config.digest(),
        "benchmark": config.benchmark,
        "method": config.method,
        "seed": config.seed,
        "status": status,
        "note": note,
        "files_note": run.stream.files_note,
        "tasks": len(run.stream),
        "steps": run.position.step,
        **averages,
        "matrix": ledger.matrix,
        "class_accuracy": ledger.class_accuracy,
        "trained": ledger.trained,
        "memory": ledger.memory,
    }


def _write_memory(run: Run) -> None:
    memory = run.learner.memory
    if memory is None or len(memory) == 0:
        return
    inputs = next(iter(leaves(memory.inputs)))  # behind it may be the task
    parts = {"inputs": inputs, "targets": memory.targets, "tasks": memory.tasks, "ids": memory.ids}
    plain = {name: part.detach().cpu().contiguous().clone() for name, part in parts.items()}
    write_atomically(run.folder / "memory.safetensors", serialise_tensors(plain))
