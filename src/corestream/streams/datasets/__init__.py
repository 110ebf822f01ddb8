"""The datasets: `load` finds their files, fetches what is missing, and reads them."""

from pathlib import Path
from weakref import WeakValueDictionary

from corestream.errors import DataError
from corestream.messages import check_name
from corestream.streams.datasets.catalogue import SOURCES
from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.datasets.reading import reading
from corestream.streams.datasets.source import ENVIRONMENT, Source, data_root

__all__ = ["SOURCES", "Dataset", "Part", "data_root", "load", "source"]

_in_use: WeakValueDictionary[tuple[object, ...], Dataset] = WeakValueDictionary()


def source(name: str) -> Source:
    """The entry of a dataset; an unknown name is answered with the nearest and all known ones."""
    return SOURCES[check_name("dataset", name, SOURCES)]


def load(name: str, *, data_dir: Path | None = None, offline: bool = False) -> Dataset:
    """Read a dataset. While somebody holds it, another call returns the same one."""
    entry, root = source(name), data_root(data_dir)
    if missing := entry.missing(root):
        if offline:
            raise missing_error(entry, root, missing)
        from corestream.streams.datasets.download import fetch

        fetch(entry, root)
    with reading(root):
        key = (name, *((str(root / file), (root / file).stat().st_mtime_ns) for file in entry.files))
    dataset = _in_use.get(key)
    if dataset is None:
        read = entry.read(root)
        note = entry.sample_note((len(read.train), len(read.test)))
        dataset = Dataset(read.name, read.train, read.test, read.classes, note, read.skipped)
        _in_use[key] = dataset
    return dataset


def missing_error(entry: Source, root: Path, missing: list[str]) -> DataError:
    files = "\n".join(f"  {root / file}" for file in missing)
    return DataError(
        f"{entry.name} is missing; looked for\n{files}\n"
        f"Get it with `corestream data fetch {entry.name} --data-dir {root}`, "
        f"or name the folder that has it with --data-dir or {ENVIRONMENT}."
    )
