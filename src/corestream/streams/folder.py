"""A folder of images as a stream: one folder per class, or `train/` and `test/` of them."""

import os
import shlex
import warnings
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from corestream.counts import is_count
from corestream.errors import ConfigError, CorestreamWarning, DataError
from corestream.streams.benchmarks.registry import Benchmark, Choice, Number
from corestream.streams.datasets.reading import MAX_SIDE
from corestream.streams.grouping import CLASSES_PER_TASK, NUM_TASKS, usual_scenario
from corestream.streams.own import from_tensors
from corestream.streams.pictures import in_colour
from corestream.streams.request import Request
from corestream.streams.stream import Stream

PREFIX = "folder:"


def from_folder(path: str | PathLike[str], *, image_size: int = 32, **options: Any) -> Stream:
    """A stream of the images under `path`, in colour, resized to `image_size` × `image_size`.

    What is transparent becomes white, and 16 bits become 8.
    `options` are those of `from_tensors`. Files that are no readable image, folders inside a class
    and classes without an image are left out with a warning, and named in `stream.skipped`.
    """
    if not is_count(image_size) or image_size > MAX_SIDE:
        raise ConfigError(
            f"image_size={image_size!r}: expected a whole number of pixels from 1 to {MAX_SIDE}"
        )
    root = Path(path).expanduser()
    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    halves = (root / "train").is_dir() and (root / "test").is_dir()
    train_root = root / "train" if halves else root
    folders = [folder.name for folder in _visible(train_root) if folder.is_dir()]
    if not folders:
        raise DataError(f"{train_root}: holds no folders; expected one folder of images per class")
    skipped: list[str] = []
    inputs, places = _read(train_root, folders, int(image_size), skipped)
    occurring, targets = places.unique(return_inverse=True)  # a class without an image gets no output
    classes = [folders[place] for place in occurring.tolist()]
    test = None
    if halves:
        test_inputs, test_places = _read(root / "test", folders, int(image_size), skipped)
        unknown = sorted(set(test_places.tolist()) - set(occurring.tolist()))
        if unknown:
            name = folders[unknown[0]]
            raise DataError(f"{root / 'test' / name}: a class without an image in the training folder")
        test = test_inputs, torch.searchsorted(occurring, test_places)
    if skipped:
        _warn_of(skipped, root)
    options.setdefault("name", f"{PREFIX}{root.resolve().name}")
    return from_tensors(inputs, targets, test=test, class_names=classes, skipped=skipped, **options)


def _build(request: Request) -> Stream:
    idle = FOLDER.idle(request.options)
    return from_folder(
        request.name.removeprefix(PREFIX),
        scenario=request.scenario,
        seed=request.seed,
        imbalanced=request.imbalanced,
        noise=request.noise,
        label_noise=request.label_noise,
        tasks=request.tasks,
        **{name: value for name, value in request.options.items() if name not in idle},
    )


FOLDER = Benchmark(
    f"{PREFIX}PATH",
    "your own folder of images, one folder per class, or train/ and test/ of them",
    _build,
    scenarios=("task", "class", "domain"),
    options={
        "image_size": Number(32, whole=True, most=MAX_SIDE),
        "split": Choice("class", "time"),
        "classes_per_task": Number(CLASSES_PER_TASK, whole=True, only_with=("split", "class")),
        "num_tasks": Number(NUM_TASKS, whole=True, only_with=("split", "time")),
        "test_share": Number(0.2, most=0.99),
        "imbalance_factor": Number(0.1, most=1.0, needs="imbalanced"),
    },
    usual_scenario=lambda options: usual_scenario(options.get("split", "class")),
)


def _read(root: Path, classes: list[str], size: int, skipped: list[str]) -> tuple[Tensor, Tensor]:
    pictures, labels, before = [], [], len(skipped)
    unknown = sorted({folder.name for folder in _visible(root) if folder.is_dir()} - set(classes))
    if unknown:
        raise DataError(f"{root / unknown[0]}: a class that the training folder does not have")
    for label, name in enumerate(classes):
        if not (root / name).is_dir():
            continue
        for file in _visible(root / name):
            if file.is_dir():
                skipped.append(f"{file}: a folder inside a class; its files are not read")
                continue
            try:
                pictures.append(_picture(file, size))
            except Exception as error:  # decoders raise anything on damaged input
                skipped.append(f"{file}: {type(error).__name__}: {error}")
                continue
            labels.append(label)
        if labels[-1:] != [label]:
            skipped.append(f"{root / name}: a class without a readable image")
    if not pictures:
        if (root / "train").is_dir() and not (root / "test").is_dir():
            raise DataError(
                f"{root}: train/ is there and test/ is not; expected both, or one folder of images per class"
            )
        here = [text.removeprefix(f"{root}{os.sep}") for text in skipped[before:]]
        why = f"; the first left out: {here[0]}" if here else ""
        raise DataError(f"{root}: holds no readable image{why}")
    images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(labels)


def _warn_of(skipped: list[str], root: Path) -> None:
    left = f"1 file of {root} was" if len(skipped) == 1 else f"{len(skipped)} files of {root} were"
    first = skipped[0].removeprefix(f"{root}{os.sep}")
    command = f"corestream show {shlex.quote(f'{PREFIX}{root}')}"
    warnings.warn(
        f"{left} left out, the first {first}; `{command}` names them all", CorestreamWarning, stacklevel=3
    )


def _picture(file: Path, size: int) -> np.ndarray:
    with Image.open(file) as image:
        upright = in_colour(ImageOps.exif_transpose(image))
        return np.asarray(upright.resize((size, size), Image.Resampling.BILINEAR))


def _visible(folder: Path) -> Iterator[Path]:
    """The entries in the order of their names, which is the same everywhere."""
    return (entry for entry in sorted(folder.iterdir()) if not entry.name.startswith("."))
