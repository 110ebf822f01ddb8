"""What a finished run says, wherever it is kept: in a run's folder, or as one small JSON file."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from corestream import learners
from corestream.errors import DataError
from corestream.studies.accuracy import check_accuracy, is_number_or_none
from corestream.studies.config import FORMAT, RunConfig
from corestream.studies.files import canonical, flat, parse_json, sha256, write_atomically

Status = Literal["done", "diverged", "failed"]
LONG_NAME = 100  # bytes
# what runs of one table cell may differ in: the seed, where and how carefully they were made, and the protocol, whose settings are
# all written out beside it
OWN_TO_A_RUN = ("seed", "device", "deterministic", "record", "protocol")
# settings that came after some of the kept runs were made, with the values that those runs had in effect
SINCE = {
    "replay_from": "memory",
    "lr_floor": 0.0,
    "loss_over": "all",
    "inner": "sum",
    "unit": False,
    "shrink": "order",
}


@dataclass(frozen=True)
class Result:
    """One run: its configuration, what it reached, and where and how long it ran."""

    config: Mapping[str, Any]
    accuracy: Mapping[str, Any]
    status: Status = "done"
    note: str = ""  # what went wrong
    files_note: str = ""  # says so where the stream's files were only a sample
    device: str = ""
    seconds: float | None = None
    folder: Path | None = None
    older: bool = False  # made under an older FORMAT, and not mixed with present runs
    threads: int | None = None  # of torch's, where known
    made: float | None = None  # when, in seconds since 1970, where known

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def matrix(self) -> list[list[float | None]]:
        """a[t][i]: accuracy on task i after task t."""
        return list(self.accuracy.get("matrix", []))


def write_result(result: Result, folder: Path) -> Path:
    """Keep a run as one small JSON file (no weights), named after what it is."""
    config = result.config
    digest = sha256(canonical(dict(config)))[:8]
    benchmark, method = (re.sub(r"[^\w.+-]+", "_", config[name]) for name in ("benchmark", "method"))
    path = folder / f"{_end(benchmark)}-{method}-seed{result.seed}-{digest}.json"
    record = {
        "format": FORMAT,
        "config": dict(config),
        "accuracy": dict(result.accuracy),
        "status": result.status,
        "note": result.note,
        "files_note": result.files_note,
        "device": result.device,
        "seconds": result.seconds,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, canonical(record) + b"\n")
    return path


def _end(name: str) -> str:
    """A folder's path may be longer than a file's name can be; its end tells most, and the digest tells all."""
    return name.encode()[-LONG_NAME:].decode(errors="ignore")


def read_results(folder: Path) -> list[Result]:
    """Every result kept by `write_result` under a folder, in the order of their names; what an older version made is passed over."""
    if not folder.is_dir():
        raise DataError(f"no folder of results at {folder}: give the folder that holds the small JSON files")
    results = [_read(path) for path in sorted(folder.rglob("*.json"))]
    return [result for result in results if not result.older]


def _read(path: Path) -> Result:
    try:
        record = parse_json(path.read_bytes())
        if not isinstance(record["config"], dict):
            raise ValueError("it describes no run")
        status = record.get("status", "done")
        if status not in get_args(Status):
            raise ValueError(f"its status is {status!r}")
        result = Result(
            config=_completed(record["config"]),
            accuracy=dict(record["accuracy"]),
            status=status,
            note=str(record.get("note", "")),
            files_note=str(record.get("files_note", "")),
            device=str(record.get("device", "")),
            seconds=record.get("seconds"),
            older=record.get("format", 3) != FORMAT,  # it was not always written down
        )
        if not result.older:
            _check(result)
        return result
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a result that corestream wrote ({error}); move it away") from error


def _check(result: Result) -> None:
    RunConfig.from_dict(result.config)
    check_accuracy(result.accuracy, result.status)
    if not is_number_or_none(result.seconds):
        raise ValueError(f"its seconds are {result.seconds!r}")


def _completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """With the settings that its method has got since the run was made."""
    method = learners.METHODS.get(config["method"])
    known = {field.name for field in fields(method.settings)} if method is not None else set()
    since = {name: value for name, value in SINCE.items() if name in known}
    return {**config, "settings": {**since, **config.get("settings", {})}}


def shared(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that runs of one table cell must share."""
    return {name: value for name, value in config.items() if name not in OWN_TO_A_RUN}


def differing_fields(results: Iterable[Result]) -> list[str]:
    """Names of the configuration fields that should be equal and are not."""
    found = differing([shared(result.config) for result in results])
    return list(found[0]) if found else []


def differing(configs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each configuration the fields that are not the same in all of them; None for one that it does not have."""
    fields_of = [flat(config) for config in configs]
    keys = sorted({key for config in fields_of for key in config})
    different = [key for key in keys if len({repr(config.get(key)) for config in fields_of}) > 1]
    return [{key: config.get(key) for key in different} for config in fields_of]
