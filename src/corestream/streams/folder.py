"""A folder of images as a stream: one folder per class, or `train/` and `test/` of them."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from corestream.errors import ConfigError, DataError
from corestream.streams.benchmarks.registry import Benchmark, Choice, Number
from corestream.streams.datasets.reading import MAX_SIDE
from corestream.streams.grouping import CLASSES_PER_TASK, NUM_TASKS, usual_scenario
from corestream.streams.own import from_tensors
from corestream.streams.request import Request
from corestream.streams.stream import Stream

PREFIX = "folder:"


def from_folder(path: str | PathLike[str], *, image_size: int = 32, **options: Any) -> Stream:
    """A stream of the images under `path`, in colour, resized to `image_size` × `image_size`.

    `options` are those of `from_tensors`. Files that are no readable image are named in `stream.skipped`.
    """
    if isinstance(image_size, bool) or not isinstance(image_size, int) or not 1 <= image_size <= MAX_SIDE:
        raise ConfigError(
            f"image_size={image_size!r}: expected a whole number of pixels from 1 to {MAX_SIDE}"
        )
    root = Path(path).expanduser()
    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    halves = (root / "train").is_dir() and (root / "test").is_dir()
    train_root = root / "train" if halves else root
    classes = [folder.name for folder in _visible(train_root) if folder.is_dir()]
    if not classes:
        raise DataError(f"{train_root}: holds no folders; expected one folder of images per class")
    skipped: list[str] = []
    inputs, targets = _read(train_root, classes, image_size, skipped)
    test = _read(root / "test", classes, image_size, skipped) if halves else None
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
        "test_share": Number(0.2, most=1.0),
        "batch_size": Number(20, whole=True),
        "imbalance_factor": Number(0.1, most=1.0),
    },
    usual_scenario=lambda options: usual_scenario(options.get("split", "class")),
)


def _read(root: Path, classes: list[str], size: int, skipped: list[str]) -> tuple[Tensor, Tensor]:
    pictures, labels = [], []
    unknown = sorted({folder.name for folder in _visible(root) if folder.is_dir()} - set(classes))
    if unknown:
        raise DataError(f"{root / unknown[0]}: a class that the training folder does not have")
    for label, name in enumerate(classes):
        for file in _visible(root / name) if (root / name).is_dir() else ():
            if file.is_dir():
                continue
            try:
                pictures.append(_picture(file, size))
            except Exception as error:  # decoders raise anything on damaged input
                skipped.append(f"{file}: {type(error).__name__}: {error}")
                continue
            labels.append(label)
    if not pictures:
        raise DataError(f"{root}: holds no readable image")
    images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(labels)


def _picture(file: Path, size: int) -> np.ndarray:
    with Image.open(file) as image:
        if max(image.size) > MAX_SIDE:
            raise ValueError(f"{image.width} × {image.height} pixels, more than {MAX_SIDE} on a side")
        upright = ImageOps.exif_transpose(image).convert("RGB")
        return np.asarray(upright.resize((size, size), Image.Resampling.BILINEAR))


def _visible(folder: Path) -> Iterator[Path]:
    """The entries in the order of their names, which is the same everywhere."""
    return (entry for entry in sorted(folder.iterdir()) if not entry.name.startswith("."))
