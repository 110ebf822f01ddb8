"""The user's own data as a stream: tensors, or any dataset of `torch.utils.data`."""

import operator
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from corestream.counts import is_count
from corestream.errors import ConfigError, DataError
from corestream.streams.benchmarks.recipe import UNIT, rows_stream
from corestream.streams.datasets.dataset import Dataset, Part
from corestream.streams.grouping import Split, groups, held_out, usual_scenario
from corestream.streams.imbalance import keep_counts, long_tail, with_one_of_each
from corestream.streams.pictures import in_bytes, in_colour
from corestream.streams.request import Request, is_number
from corestream.streams.seeds import generator
from corestream.streams.stream import SCENARIOS, Stream

Values = Tensor | np.ndarray
Pair = tuple[Values, Values]

CHANNELS = {1, 3, 4}  # of a picture
MOST_OUTPUTS = 2**20


def from_tensors(
    inputs: Values,
    targets: Values,
    *,
    test: Pair | None = None,
    split: str = "class",
    classes_per_task: int | None = None,
    num_tasks: int | None = None,
    task_labels: Values | None = None,
    test_task_labels: Values | None = None,
    test_share: float = 0.2,
    scenario: str | None = None,
    batch_size: int = 20,
    seed: int = 0,
    imbalanced: bool = False,
    imbalance_factor: float = 0.1,
    noise: float = 0.0,
    label_noise: float = 0.0,
    tasks: int | None = None,
    name: str = "tensors",
    class_names: Sequence[str] = (),
    skipped: Sequence[str] = (),
) -> Stream:
    """A stream of your own samples, tensors or NumPy's arrays.

    `inputs` are images [n, C, H, W] or [n, H, W], which arrives as [n, 1, H, W], or vectors [n, D]; bytes are scaled
    to [0, 1], floats stay, and vectors of whole numbers, such as tokens, stay whole numbers. `targets` are labels
    from 0. Tasks are made by `split`: "class" (`classes_per_task`, otherwise 2, of those that occur at a time),
    "label" (one task per value of `task_labels`) or "time" (`num_tasks`, otherwise 5, pieces in the order given).
    Without `test`, a share of every class of every task is held out by seed. `imbalanced` thins the classes to a
    long tail, and leaves at least one sample of every class of every task.
    """
    labels = None if task_labels is None else _numbers("task_labels", task_labels)
    test_labels = None if test_task_labels is None else _numbers("test_task_labels", test_task_labels)
    how = Split(split, classes_per_task, num_tasks, labels, test_labels)
    if test_labels is not None and test is None:
        raise ConfigError("test_task_labels: they belong to the samples of `test`, which is not given")
    share, factor = test_share, imbalance_factor
    _check("test_share", share, is_number(share) and 0 < share < 1, "a share between 0 and 1")
    _check("imbalance_factor", factor, is_number(factor) and 0 < factor <= 1, "a factor above 0, at most 1")
    _check("batch_size", batch_size, is_count(batch_size), "a whole number of at least 1")
    chosen = scenario or usual_scenario(split)
    _check("scenario", chosen, chosen in SCENARIOS, f"one of {', '.join(SCENARIOS)}")
    request = Request(
        name=name,
        seed=seed,
        imbalanced=imbalanced,
        noise=noise,
        label_noise=label_noise,
        scenario=chosen,
        tasks=tasks,
        options={**how.settings(), "test_share": float(share), "imbalance_factor": float(factor)},
    )
    train = _part((inputs, targets), "")
    if request.noise > 0 and train.images.dtype == torch.int64:
        raise ConfigError(
            f"noise={noise}: the inputs are whole numbers, and N(0, 1) is none; give noise=0, or inputs of floats"
        )
    given = None if test is None else _part(test, "test ")
    if given is not None:
        _check_test(train, given)
    names = _class_names(class_names, int(train.labels.max()))
    data = Dataset(name, train, train if given is None else given, names, skipped=tuple(skipped))
    return _stream(request, data, how, separate_test=given is not None, batch_size=int(batch_size))


def from_dataset(
    dataset: TorchDataset[Any], *, test: TorchDataset[Any] | None = None, **options: Any
) -> Stream:
    """A stream of a dataset that yields `(input, label)`; `options` are those of `from_tensors`.

    An input is a tensor or an array [C, H, W], [H, W] or [D], or an image of Pillow's. An array whose last dimension alone
    could be that of a picture's channels, 1, 3 or 4, is taken for [H, W, C]. Images with a palette become RGB, those of
    16 bits 8. All must have one shape.
    """
    options.setdefault("name", "dataset")
    return from_tensors(*_gathered(dataset), test=None if test is None else _gathered(test), **options)


def _stream(request: Request, data: Dataset, how: Split, *, separate_test: bool, batch_size: int) -> Stream:
    labels = data.train.labels.numpy()
    classes = np.unique(labels)
    tasks = how.tasks_of(data.train, classes)
    rows = np.arange(len(labels))
    if separate_test:
        test_rows = np.arange(len(data.test))
        test_tasks = how.tasks_of(data.test, classes, test=True)
    else:
        random = generator(request.seed, request.name, "held out")
        tested = held_out(tasks, labels, request.options["test_share"], random)
        rows, test_rows, test_tasks = rows[~tested], rows[tested], tasks
    if request.imbalanced:
        largest = int(np.bincount(labels[rows]).max())
        counts = long_tail(classes.tolist(), largest, request.options["imbalance_factor"])
        random = generator(request.seed, request.name, "long tail")
        kept = keep_counts(labels[rows], counts, random)
        rows = rows[with_one_of_each(kept, tasks[rows], labels[rows])]
    test = (data.test.labels.numpy(), test_rows, test_tasks)
    made = groups(how, (labels, rows, tasks), test, separate_test=separate_test)
    scale = UNIT if data.train.images.dtype == torch.uint8 else None
    return rows_stream(request, data, made, batch_size=batch_size, scale=scale)


def _part(pair: Pair, half: str) -> Part:
    """Inputs as they will arrive but for the scale of bytes, labels as int64, once they fit each other."""
    inputs, targets = pair
    inputs, targets = torch.as_tensor(inputs), _numbers(f"{half}targets", targets)
    if targets.dim() != 1 or len(targets) == 0 or inputs.shape[:1] != targets.shape:
        given = f"{half}inputs {tuple(inputs.shape)} and targets {tuple(targets.shape)}"
        raise ValueError(f"{given}: expected n ≥ 1 inputs and [n] targets")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise ValueError(f"{half}targets: expected whole numbers from 0, got {targets.dtype}")
    smallest = int(targets.to(torch.int64).min())
    if smallest < 0:
        raise ValueError(f"{half}targets: expected whole numbers from 0, got {smallest}")
    if inputs.dim() not in (2, 3, 4):
        raise ValueError(f"{half}inputs {tuple(inputs.shape)}: expected [n, C, H, W], [n, H, W] or [n, D]")
    if inputs.dim() == 4 and _has_channels_last(inputs.shape[1:]):
        raise ValueError(
            f"{half}inputs {tuple(inputs.shape)}: expected [n, C, H, W], and this looks like [n, H, W, C]; give channels "
            "first, x.transpose(0, 3, 1, 2) of an array, x.permute(0, 3, 1, 2) of a tensor"
        )
    return Part(_stored(inputs.detach().cpu()), targets.cpu().to(torch.int64))


def _has_channels_last(shape: Sequence[int]) -> bool:
    """Whether an input is [H, W, C]; where another dimension could be the channels too, they come first."""
    return shape[2] in CHANNELS and not CHANNELS & set(shape[:2])


def _stored(inputs: Tensor) -> Tensor:
    """[n, D] or [n, C, H, W]: bytes as they are, vectors of whole numbers as int64, all else as float32."""
    shaped = inputs.unsqueeze(1) if inputs.dim() == 3 else inputs
    if shaped.dtype == torch.uint8:
        return shaped
    fractional = shaped.is_floating_point() or shaped.is_complex() or shaped.dtype == torch.bool
    return shaped.to(torch.float32 if fractional or shaped.dim() == 4 else torch.int64)


def _check_test(train: Part, test: Part) -> None:
    """Training and test samples must agree in shape and type, and in their classes."""
    if _form(train) != _form(test):
        raise ValueError(f"test inputs are {_form(test)}, training inputs {_form(train)}: expected the same")
    unknown = np.setdiff1d(test.labels.numpy(), train.labels.numpy())
    if len(unknown):
        raise DataError(f"test targets: {unknown[0]} is a class that the training targets do not have")


def _class_names(given: Sequence[str], largest: int) -> tuple[str, ...]:
    """The names given, or the numbers up to the largest label."""
    if given and len(given) <= largest:
        raise ValueError(f"class_names: {len(given)} names, but there is a label {largest}")
    if largest >= MOST_OUTPUTS:
        raise DataError(
            f"targets: the label {largest} would mean {largest + 1} outputs; number the classes from 0, "
            "as numpy.unique(y, return_inverse=True)[1] does"
        )
    return tuple(given) or tuple(str(label) for label in range(largest + 1))


def _form(part: Part) -> str:
    return f"{part.images.dtype} {tuple(part.images.shape[1:])}"


def _gathered(dataset: Any) -> Pair:
    if isinstance(dataset, DataLoader):
        raise DataError(
            "the dataset is a DataLoader, whose items are batches; give the dataset behind it, loader.dataset"
        )
    items = (dataset[i] for i in range(len(dataset))) if hasattr(dataset, "__len__") else iter(dataset)
    inputs: list[Tensor] = []
    labels: list[int] = []
    for number, pair in enumerate(items):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(
                f"item {number} of the dataset is of type {type(pair).__name__}; expected a pair (input, label)"
            )
        item, label = pair
        inputs.append(_as_tensor(item))
        labels.append(_label(number, label))
        if inputs[-1].shape != inputs[0].shape:
            shapes = f"{tuple(inputs[-1].shape)}, the first is {tuple(inputs[0].shape)}"
            raise DataError(
                f"item {number} of the dataset has shape {shapes}; resize them to one shape first"
            )
    if not inputs:
        raise DataError("the dataset is empty")
    return torch.stack(inputs), torch.tensor(labels)


def _label(number: int, label: Any) -> int:
    try:
        return operator.index(label.item() if hasattr(label, "item") else label)
    except (TypeError, ValueError, RuntimeError):  # the last two: more than one number
        raise DataError(
            f"item {number} of the dataset has the label {reprlib.repr(label)}; expected a whole number from 0"
        ) from None


def _numbers(name: str, values: Values) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name}={reprlib.repr(values)}: expected numbers; numpy.unique(names, return_inverse=True)[1] makes "
            "them of names"
        ) from None


def _as_tensor(item: Any) -> Tensor:
    if isinstance(item, Tensor):
        return item
    is_picture = isinstance(item, Image.Image)
    if is_picture:
        item = in_colour(item) if item.mode in ("P", "PA") else in_bytes(item)
    array = np.array(item)
    if array.ndim == 3 and (is_picture or _has_channels_last(array.shape)):
        array = np.ascontiguousarray(array.transpose(2, 0, 1))
    return torch.from_numpy(array)


def _check(name: str, value: object, right: bool, expected: str) -> None:
    if not right:
        raise ConfigError(f"{name}={value!r}: expected {expected}")
