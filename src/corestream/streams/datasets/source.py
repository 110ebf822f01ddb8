"""Where a dataset comes from: its files in the data folder, and the downloads that make them."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from corestream.streams.datasets.dataset import Dataset

ENVIRONMENT = "CORESTREAM_DATA"


@dataclass(frozen=True)
class Download:
    """One file on the net, the publisher's address first; `unpack` names the folder inside a tar."""

    path: str
    urls: tuple[str, ...]
    checksum: str
    unpack: str = ""


@dataclass(frozen=True)
class Source:
    """A dataset by name. `files` maps each file, relative to the data folder, to the published MD5;
    all of them together have about so many `megabytes`."""

    name: str
    summary: str
    read: Callable[[Path], Dataset] = field(repr=False)
    published: tuple[int, int] = (0, 0)
    files: dict[str, str] = field(default_factory=dict, repr=False)
    downloads: tuple[Download, ...] = field(default=(), repr=False)
    megabytes: float = 0.0

    def missing(self, root: Path) -> list[str]:
        return [file for file in self.files if not os.path.isfile(root / file)]

    def looks_sampled(self, root: Path) -> bool:
        """Whether the files, all there, have less than half the published size; nothing is read."""
        size = sum(os.path.getsize(root / file) for file in self.files)
        return size < 0.5e6 * self.megabytes

    def sample_note(self, found: tuple[int, int]) -> str:
        """Text for cards and figures where the files hold fewer images than were published."""
        if found == self.published:
            return ""
        counts = [f"{have:,} of {of:,}" for have, of in zip(found, self.published, strict=True) if of]
        return f"{self.name}: a sample, {' training and '.join(counts)}{' test' * (len(counts) - 1)} images"


def data_root(data_dir: Path | None) -> Path:
    """The folder given, else the one `CORESTREAM_DATA` names, else the user's cache."""
    if data_dir is not None:
        return data_dir.expanduser()
    if named := os.environ.get(ENVIRONMENT):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corestream"
