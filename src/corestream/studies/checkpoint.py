"""A run's whole state on disk: tensors as safetensors, the rest as JSON; nothing in it can run code.

Each checkpoint is two files with one number. The JSON file is written last and holds the checksum of both and
the digest of the configuration: a checkpoint counts only once it is whole, and only for its own run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor

from corestream.errors import RunError
from corestream.studies.files import canonical, parse_json, sha256, write_atomically

KEPT = 2  # the newest, and the one before it
FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """`tensors` and JSON-able `facts`; `passed_over` says which newer ones were damaged and why."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    passed_over: tuple[str, ...] = ()


def save(folder: Path, digest: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write the next checkpoint; the one before it stays until this one is whole."""
    number = max(_numbers(folder), default=0) + 1
    try:
        folder.mkdir(exist_ok=True)
        content = serialise_tensors(_own_memory(tensors))
        write_atomically(folder / f"{number:06d}.safetensors", content)
        manifest = {"format": FORMAT, "digest": digest, "tensors": sha256(content), "facts": dict(facts)}
        manifest["checksum"] = sha256(canonical(manifest))
        write_atomically(folder / f"{number:06d}.json", canonical(manifest))
    except OSError as error:
        (folder / f"{number:06d}.safetensors").unlink(missing_ok=True)
        last = (
            "the last whole checkpoint is still there"
            if _numbers(folder)
            else "no checkpoint was written yet"
        )
        raise RunError(
            f"the checkpoint could not be written to {folder}: {error.strerror or error}; {last}. "
            "Make room and start the same command again"
        ) from error
    _prune(folder, keep=KEPT)


def load(
    folder: Path, digest: str, check: Callable[[dict[str, Any]], None] | None = None
) -> Checkpoint | None:
    """The newest whole checkpoint of this configuration, None where there is none at all, else a RunError. `check` raises a ValueError
    where its facts do not fit what else there is."""
    damaged: list[str] = []
    for number in sorted(_numbers(folder), reverse=True):
        try:
            tensors, facts = _read(folder, number, digest)
            if check is not None:
                check(facts)
            return Checkpoint(tensors, facts, tuple(damaged))
        except (OSError, ValueError) as error:
            damaged.append(f"{number:06d} {error}")
    if damaged:
        raise RunError(
            f"no checkpoint in {folder} can be used: {'; '.join(damaged)}. "
            f"Remove {folder.parent} to make this run again from the start"
        )
    return None


def keep_newest(folder: Path) -> None:
    """A finished run needs only its last state; one that diverged before its first checkpoint has none."""
    if folder.exists():
        _prune(folder, keep=1)


def _read(folder: Path, number: int, digest: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    manifest = parse_json((folder / f"{number:06d}.json").read_bytes())
    checksum = manifest.pop("checksum", None)
    if checksum != sha256(canonical(manifest)):
        raise ValueError("is torn or was changed (its checksum differs)")
    if manifest.get("format") != FORMAT:
        raise ValueError(f"has format {manifest.get('format')!r}, this version reads {FORMAT}")
    if manifest["digest"] != digest:
        raise ValueError(f"belongs to another configuration ({manifest['digest']}, not {digest})")
    content = (folder / f"{number:06d}.safetensors").read_bytes()
    if sha256(content) != manifest["tensors"]:
        raise ValueError("has torn or changed tensors (their checksum differs)")
    facts = manifest["facts"]
    if not isinstance(facts, dict):
        raise ValueError(f"holds a {type(facts).__name__}, not facts")
    return parse_tensors(content), facts


def _numbers(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()]


def _prune(folder: Path, keep: int) -> None:
    """Drop older checkpoints, and what a killed process left half-written."""
    kept = {f"{number:06d}" for number in sorted(_numbers(folder))[-keep:]}
    for path in folder.iterdir():
        if path.stem not in kept:
            path.unlink(missing_ok=True)


def _own_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """safetensors takes no views and no two names for one storage."""
    owned: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != plain.nbytes:
            plain = plain.clone()
        storages.add(plain.untyped_storage().data_ptr())
        owned[name] = plain
    return owned
