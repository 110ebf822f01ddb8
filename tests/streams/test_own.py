import json
import re
import reprlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from corestream import OCS, ReplayMemory
from corestream.errors import ConfigError, DataError
from corestream.models.mlp import MLP
from corestream.streams import from_dataset, from_tensors


@pytest.fixture
def images() -> torch.Tensor:
    return (
        torch.arange(600, dtype=torch.int64)
        .remainder(256)
        .to(torch.uint8)
        .view(600, 1, 1, 1)
        .expand(-1, 3, 8, 8)
        .contiguous()
    )


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.arange(600) % 6


def test_classes_arrive_a_few_at_a_time(images: torch.Tensor, labels: torch.Tensor) -> None:
    stream = from_tensors(images, labels, classes_per_task=2)
    assert [task.classes for task in stream] == [(0, 1), (2, 3), (4, 5)]
    assert (stream.scenario, stream.num_classes, stream.input_shape) == ("task", 6, (3, 8, 8))
    x, y, task = next(iter(stream[1].train))
    assert x.dtype == torch.float32
    assert float(x.max()) <= 1
    assert set(y.tolist()) == {2, 3}
    assert task.unique().tolist() == [1]
    assert [len(t.classes) for t in from_tensors(images, labels, classes_per_task=4)] == [4, 2]


def test_a_share_of_every_class_is_held_out_by_seed(images: torch.Tensor, labels: torch.Tensor) -> None:
    stream = from_tensors(images, labels, test_share=0.25, seed=3)
    card = stream.describe()
    assert card["train_per_class"][0] == {"0": 75, "1": 75}
    assert card["test_per_class"][2] == {"4": 25, "5": 25}
    same, other = (
        from_tensors(images, labels, test_share=0.25, seed=seed)[0].test.tensors()[0] for seed in (3, 4)
    )
    assert torch.equal(stream[0].test.tensors()[0], same)
    assert not torch.equal(same, other)


def test_training_and_test_samples_never_overlap(labels: torch.Tensor) -> None:
    numbers = torch.arange(600.0)[:, None]
    for split, extra in (("class", {}), ("time", {}), ("label", {"task_labels": torch.arange(600) // 200})):
        stream = from_tensors(numbers, labels, split=split, **extra)
        train = torch.cat([task.train.tensors()[0].flatten() for task in stream])
        test = torch.cat([task.test.tensors()[0].flatten() for task in stream])
        assert torch.equal(torch.cat([train, test]).sort().values, numbers.flatten())


def test_time_order_makes_pieces_in_the_order_given(labels: torch.Tensor) -> None:
    stream = from_tensors(torch.arange(600.0)[:, None], labels, split="time", num_tasks=4)
    assert (len(stream), stream.scenario) == (4, "domain")
    for number, task in enumerate(stream):
        values = task.train.tensors()[0]
        assert 150 * number <= float(values.min())
        assert float(values.max()) < 150 * (number + 1)


def test_a_given_label_makes_the_tasks(images: torch.Tensor, labels: torch.Tensor) -> None:
    places = torch.tensor([30, 10, 20]).repeat(200)
    stream = from_tensors(images, labels, split="label", task_labels=places)
    assert [task.title for task in stream] == ["label 10", "label 20", "label 30"]
    with pytest.raises(ConfigError, match="task_labels"):
        from_tensors(images, labels, split="label")
    with pytest.raises(ValueError, match=r"^task_labels: expected one for each of the 600 training samples"):
        from_tensors(images, labels, split="label", task_labels=places[:5])


def test_a_given_test_set_is_used_whole(images: torch.Tensor, labels: torch.Tensor) -> None:
    stream = from_tensors(images, labels, test=(images[:60], labels[:60]))
    assert stream.describe()["train"] == [200] * 3
    assert stream.describe()["test"] == [20] * 3
    with pytest.raises(ValueError, match="expected the same"):
        from_tensors(images, labels, test=(images[:60].float(), labels[:60]))


def test_imbalance_and_noise_work_as_on_a_benchmark(images: torch.Tensor, labels: torch.Tensor) -> None:
    stream = from_tensors(images, labels, imbalanced=True, imbalance_factor=0.1, noise=0.5, label_noise=0.25)
    card = stream.describe()
    counts = sorted((count for task in card["train_per_class"] for count in task.values()), reverse=True)
    assert counts == [int(80 * 0.1 ** (i / 5)) for i in range(6)]
    assert card["noise_samples"] == [round(0.5 * count) for count in card["train"]]
    assert card["flipped_labels"] == [round(0.25 * count) for count in card["train"]]
    x = stream[0].train.tensors()[0]
    assert float(x[stream[0].train.is_noise].min()) < -1


def test_an_imbalanced_task_trains_on_every_class_it_is_tested_on() -> None:
    x, y = torch.rand(200, 8), torch.arange(200) % 10
    for task in from_tensors(x, y, split="time", scenario="task", imbalanced=True):
        assert set(task.test.targets.tolist()) <= set(task.classes)


def test_imbalance_leaves_as_many_tasks_as_asked_for() -> None:
    x, y = torch.rand(200, 8), torch.arange(200) // 40
    assert len(from_tensors(x, y, split="time", num_tasks=20, imbalanced=True)) == 20


def test_a_task_that_would_be_tested_on_other_classes_is_refused() -> None:
    x, y = torch.rand(200, 8), torch.arange(200) // 40
    other_shares = torch.tensor([0] * 30 + [1] * 5 + [2] * 5 + [3] * 5 + [4] * 5)
    with pytest.raises(DataError, match="task 2 has no test sample of a class that it trains on; give each"):
        from_tensors(x, y, test=(x[:50], other_shares), split="time")
    assert len(from_tensors(x, y, test=(x[::4], y[::4]), split="time")) == 5


def test_grey_images_are_given_a_channel(labels: torch.Tensor) -> None:
    stream = from_tensors(torch.arange(12_000).view(600, 5, 4), labels)
    assert stream.input_shape == (1, 5, 4)
    x = stream[0].train.tensors()[0]
    assert (x.shape[1:], x.dtype) == ((1, 5, 4), torch.float32)


def test_vectors_stay_vectors(labels: torch.Tensor) -> None:
    stream = from_tensors(torch.rand(600, 10), labels, split="time", num_tasks=3, noise=0.5, imbalanced=True)
    assert stream.input_shape == (10,)
    x, y = next(iter(stream[0].train))
    assert x.shape == (20, 10)
    assert stream.joint()[0].train.tensors()[0].shape[1:] == (10,)
    model = nn.Linear(10, stream.num_classes)
    learner = OCS(
        model, torch.optim.SGD(model.parameters(), lr=0.1), ReplayMemory(capacity=10), k=5, replay=5
    )
    assert len(learner.observe(x, y).picked) == 5
    assert MLP(stream.input_shape, stream.num_classes)(x).shape == (20, 6)


def test_a_model_that_does_not_flatten_images_is_told_so(images: torch.Tensor, labels: torch.Tensor) -> None:
    model = nn.Linear(8, 6)
    learner = OCS(
        model, torch.optim.SGD(model.parameters(), lr=0.1), ReplayMemory(capacity=10), k=5, replay=5
    )
    x, y = next(iter(from_tensors(images, labels, scenario="class")[0].train))
    with pytest.raises(ValueError, match="let the model flatten its inputs"):
        learner.observe(x, y)


def test_vectors_of_bytes_are_scaled(labels: torch.Tensor) -> None:
    x = from_tensors(torch.full((600, 4), 255, dtype=torch.uint8), labels)[0].train.tensors()[0]
    assert (x.shape[1:], x.unique().tolist()) == ((4,), [1.0])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_vectors_of_whole_numbers_stay_whole_numbers(labels: torch.Tensor, dtype: torch.dtype) -> None:
    tokens = (torch.arange(600 * 7) % 11).view(600, 7).to(dtype)
    stream = from_tensors(tokens, labels, split="time", num_tasks=2, label_noise=0.2)
    assert stream.input_shape == (7,)
    memory = ReplayMemory(capacity=10)
    model = nn.Sequential(nn.Embedding(11, 3), nn.Flatten(), nn.Linear(21, 6))
    learner = OCS(model, torch.optim.SGD(model.parameters(), lr=0.1), memory, k=5, replay=5)
    for task in stream:
        for x, y in task.train:
            assert (x.shape[1:], x.dtype) == ((7,), torch.int64)
            learner.observe(x, y)
        learner.end_task()
    assert memory.inputs.dtype == torch.int64
    joined = stream.joint()[0].test.tensors()[0]
    assert torch.equal(joined, torch.cat([task.test.tensors()[0] for task in stream]))
    assert joined.dtype == torch.int64


def test_noise_in_whole_numbers_is_refused(labels: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match=r"noise=0.5: the inputs are whole numbers"):
        from_tensors(torch.zeros(600, 7, dtype=torch.int64), labels, noise=0.5)


def test_a_split_by_class_goes_by_the_classes_that_occur(labels: torch.Tensor) -> None:
    stream = from_tensors(torch.rand(600, 3), labels * 10, classes_per_task=2, imbalanced=True)
    assert [task.classes for task in stream] == [(0, 10), (20, 30), (40, 50)]
    assert stream.num_classes == 51  # labels stay as they are
    card = stream.describe()
    assert card["classes"] == 6
    counts = sorted((count for task in card["train_per_class"] for count in task.values()), reverse=True)
    assert counts == [int(80 * 0.1 ** (i / 5)) for i in range(6)]


def test_given_test_samples_go_to_the_task_of_their_class(labels: torch.Tensor) -> None:
    test = (torch.rand(60, 3), torch.tensor([20, 50]).repeat(30))
    stream = from_tensors(torch.rand(600, 3), labels * 10, test=test, classes_per_task=3)
    assert [task.test.original_targets.unique().tolist() for task in stream] == [[20], [50]]


def test_arrays_of_numpy_are_taken(images: torch.Tensor, labels: torch.Tensor) -> None:
    places = torch.arange(600) // 300
    given = {"split": "label", "noise": 0.5}
    test = (images[::3], labels[::3])
    tensors = from_tensors(
        images, labels, test=test, task_labels=places, test_task_labels=places[::3], **given
    )
    arrays = from_tensors(
        images.numpy(),
        labels.numpy(),
        test=(test[0].numpy(), test[1].numpy()),
        task_labels=places.numpy(),
        test_task_labels=places[::3].numpy(),
        **given,
    )
    for mine, other in zip(arrays, tensors, strict=True):
        assert torch.equal(mine.train.tensors()[0], other.train.tensors()[0])
        assert torch.equal(mine.test.tensors()[1], other.test.tensors()[1])


def test_label_noise_needs_a_task_of_two_classes(images: torch.Tensor, labels: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match=r"label_noise=0.2: .* every task has one class"):
        from_tensors(images, labels, classes_per_task=1, label_noise=0.2)
    card = from_tensors(images, labels, classes_per_task=5, label_noise=0.2).describe()
    assert card["flipped_labels"] == [80, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": torch.zeros(5, 3)}, "expected n ≥ 1 inputs"),
        ({"inputs": torch.zeros(600)}, "expected \\[n, C, H, W\\]"),
        ({"targets": torch.zeros(600)}, "whole numbers from 0"),
        ({"targets": torch.full((600,), -7)}, "whole numbers from 0, got -7"),
        ({"targets": np.array(["ant", "bee"] * 300)}, "targets=.*expected numbers; numpy.unique"),
        ({"split": "colour"}, "expected one of class, label, time"),
        ({"scenario": "none"}, "expected one of domain, task, class"),
        ({"test_share": 1.0}, "test_share=1.0"),
        ({"test_share": "0.2"}, "test_share='0.2': expected a share between 0 and 1"),
        ({"batch_size": 0}, "batch_size=0: expected a whole number of at least 1"),
        ({"batch_size": "20"}, "batch_size='20': expected a whole number of at least 1"),
        ({"batch_size": 2.5}, "batch_size=2.5: expected a whole number of at least 1"),
        ({"classes_per_task": 0}, "classes_per_task=0"),
        ({"classes_per_task": 1.5}, "classes_per_task=1.5: expected a whole number of at least 1"),
        ({"classes_per_task": "2"}, "classes_per_task='2': expected a whole number of at least 1"),
        ({"split": "time", "num_tasks": 0}, "num_tasks=0: expected a whole number of at least 1"),
        ({"split": "time", "classes_per_task": 2}, "classes_per_task=2: only split='class' takes it"),
        ({"num_tasks": 3}, "num_tasks=3: only split='time' takes it, and split is 'class'"),
        ({"seed": -1}, "seed is -1; allowed are 0, 1, 2, …"),
        ({"seed": 1.5}, "seed=1.5: expected a whole number"),
        ({"imbalance_factor": 0.0}, "imbalance_factor=0.0"),
        ({"imbalance_factor": "0.1"}, "imbalance_factor='0.1'"),
        ({"noise": 2.0}, "noise=2.0"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"noise": "0.5"}, "noise='0.5'"),
        ({"split": "label", "task_labels": ["a", "b"] * 300}, "task_labels=.*'a'.*expected numbers"),
        ({"test_task_labels": torch.zeros(600)}, "test_task_labels: only split='label' takes them"),
        (
            {"split": "label", "task_labels": torch.zeros(600), "test_task_labels": torch.zeros(600)},
            "test_task_labels: they belong to the samples of `test`",
        ),
        ({"class_names": ["a"]}, "1 names"),
    ],
)
def test_wrong_arguments_are_named(change: dict, message: str) -> None:
    arguments = {"inputs": torch.zeros(600, 3), "targets": torch.arange(600) % 6, **change}
    with pytest.raises(ValueError, match=message):  # ConfigError is one
        from_tensors(arguments.pop("inputs"), arguments.pop("targets"), **arguments)


def test_numbers_of_numpy_are_taken_and_recorded_as_plain_ones() -> None:
    x, y = torch.zeros(600, 3), torch.arange(600) % 6
    given = {"seed": np.int64(3), "noise": np.float32(0.5), "test_share": np.float32(0.25)}
    counts = {"batch_size": np.int32(7), "classes_per_task": np.int64(3), "tasks": np.int64(1)}
    stream = from_tensors(x, y, **given, **counts)
    plain = from_tensors(x, y, seed=3, noise=0.5, test_share=0.25, batch_size=7, classes_per_task=3, tasks=1)
    assert json.dumps(stream.describe()) == json.dumps(plain.describe())
    assert torch.equal(stream[0].train.tensors()[0], plain[0].train.tensors()[0])


def test_a_label_that_would_mean_too_many_outputs_is_refused() -> None:
    y = torch.arange(600) % 6
    with pytest.raises(DataError, match=r"label 5000000000 would mean 5000000001 outputs; .*numpy\.unique"):
        from_tensors(torch.zeros(600, 3), y * 10**9)
    assert from_tensors(torch.zeros(600, 3), y * 1000).num_classes == 5001


def test_test_samples_of_a_class_without_training_samples_are_refused(labels: torch.Tensor) -> None:
    x = torch.zeros(600, 3)
    with pytest.raises(DataError, match="4 is a class that the training targets do not have"):
        from_tensors(x, labels % 4, test=(x, labels))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_last_are_refused(labels: torch.Tensor, channels: int) -> None:
    pictures = np.zeros((600, 8, 8, channels), np.uint8)
    with pytest.raises(ValueError, match=r"\(600, 8, 8, .\): .*channels first, x\.transpose\(0, 3, 1, 2\)"):
        from_tensors(pictures, labels)
    assert from_tensors(pictures.transpose(0, 3, 1, 2), labels).input_shape == (channels, 8, 8)


def test_small_maps_of_many_channels_are_taken(labels: torch.Tensor) -> None:
    for side in (1, 3, 4):
        assert from_tensors(torch.zeros(600, 16, side, side), labels).input_shape == (16, side, side)


class Countdown(IterableDataset):
    def __iter__(self):
        return ((Image.fromarray(np.full((6, 5, 3), i, np.uint8)), i % 4) for i in range(40))


def test_any_dataset_becomes_a_stream(images: torch.Tensor, labels: torch.Tensor) -> None:
    stream = from_dataset(TensorDataset(images, labels), classes_per_task=3)
    assert stream.describe()["train"] == [240, 240]
    held_out = from_dataset(TensorDataset(images, labels), test=TensorDataset(images[:30], labels[:30]))
    assert held_out.describe()["test"] == [10, 10, 10]
    pictures = from_dataset(Countdown())
    assert pictures.input_shape == (3, 6, 5)
    assert pictures[0].train._half.samples.images.dtype == torch.uint8


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        ((3, 8, 8), (3, 8, 8)),
        ((1, 8, 5), (1, 8, 5)),
        ((2, 8, 5), (2, 8, 5)),
        ((16, 3, 3), (16, 3, 3)),
        ((4, 8, 3), (4, 8, 3)),
        ((8, 5, 3), (3, 8, 5)),
        ((8, 5, 1), (1, 8, 5)),
    ],
)
def test_an_array_has_its_channels_first_unless_only_the_last_dimension_could_be_them(
    given: tuple[int, ...], arrives: tuple[int, ...]
) -> None:
    array = np.random.default_rng(0).random(given, np.float32)
    stream = from_dataset([(array, i % 2) for i in range(20)])
    expected = array if given == arrives else array.transpose(2, 0, 1)
    assert stream.input_shape == arrives
    assert torch.equal(stream[0].train.tensors()[0][0], torch.from_numpy(expected.copy()))


def test_a_picture_as_small_as_its_channels_has_them_last() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    stream = from_dataset([(Image.fromarray(pixels), i % 2) for i in range(20)])
    assert stream.input_shape == (3, 4, 4)
    x = stream[0].train.tensors()[0][0]
    assert torch.equal((x * 255).round().byte(), torch.from_numpy(pixels).permute(2, 0, 1))


@pytest.mark.parametrize("mode", ["P", "PA"])
def test_pictures_with_a_palette_have_their_colours(mode: str) -> None:
    picture = Image.new("RGB", (5, 4), (255, 0, 0)).convert("P").convert(mode)
    stream = from_dataset([(picture, i % 2) for i in range(20)])
    assert stream.input_shape == (3, 4, 5)
    assert stream[0].train.tensors()[0].mean((0, 2, 3)).tolist() == [1, 0, 0]


def test_pictures_of_16_bits_are_scaled_as_bytes_are() -> None:
    picture = Image.fromarray(np.full((4, 5), 0x80FF, np.uint16))
    x = from_dataset([(picture, i % 2) for i in range(20)])[0].train.tensors()[0]
    assert (x * 255).round().unique().tolist() == [0x80]


def test_items_of_different_shapes_are_refused_by_number() -> None:
    items = [(torch.zeros(3, 4, 4), 0), (torch.zeros(3, 5, 4), 1)]
    with pytest.raises(DataError, match="item 1 of the dataset"):
        from_dataset(items)
    with pytest.raises(DataError, match="empty"):
        from_dataset([])


@pytest.mark.parametrize(
    ("items", "kind"), [([1, 2, 3], "int"), (["ab"], "str"), ([(torch.zeros(3), 0, 0)], "tuple")]
)
def test_items_that_are_no_pairs_are_refused(items: list, kind: str) -> None:
    with pytest.raises(DataError, match=rf"item 0 of the dataset is of type {kind}; expected a pair"):
        from_dataset(items)


@pytest.mark.parametrize(
    "label", [0.9, "cat", torch.tensor(1.0), np.float32(2), torch.tensor([0, 1]), None], ids=repr
)
def test_labels_of_a_dataset_that_are_no_whole_numbers_are_refused(label: object) -> None:
    shown = re.escape(reprlib.repr(label))
    with pytest.raises(DataError, match=rf"item 1 of the dataset has the label {shown}; expected a whole"):
        from_dataset([(torch.zeros(3), 0), (torch.zeros(3), label)])


def test_of_a_loader_the_dataset_behind_it_is_asked_for(images: torch.Tensor, labels: torch.Tensor) -> None:
    dataset = TensorDataset(images, labels)
    with pytest.raises(DataError, match=r"is a DataLoader, .* give the dataset behind it, loader\.dataset"):
        from_dataset(dataset, test=DataLoader(dataset))


def test_whole_labels_of_a_dataset_may_be_of_any_kind() -> None:
    labels = [0, np.int16(1), torch.tensor(0), np.array(1), torch.tensor([0]), np.array([1])]
    stream = from_dataset([(torch.zeros(3), label) for label in labels])
    assert stream.describe()["train_per_class"] == [{"0": 2, "1": 2}]


def test_a_task_without_test_samples_is_refused() -> None:
    with pytest.raises(DataError, match="task 2 has no test samples; none of its classes has two samples"):
        from_tensors(torch.zeros(4, 3), torch.tensor([0, 0, 2, 3]))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "task 2 has no test samples; give test samples of class 2 or 3"),
        ({"split": "time"}, "task 2 has no test samples; give at least 5 test samples, or fewer tasks"),
        (
            {
                "split": "label",
                "task_labels": torch.tensor([7, 8]).repeat_interleave(20),
                "test_task_labels": torch.tensor([7, 7]),
            },
            "label 8 has no test samples; give test samples with 8 in test_task_labels",
        ),
    ],
)
def test_a_task_without_samples_in_the_given_test_set_is_told_which(options: dict, advice: str) -> None:
    x, y = torch.zeros(40, 3), torch.arange(40) % 4
    with pytest.raises(DataError, match=advice):
        from_tensors(x, y, test=(x[:2], y[:2]), **options)


def test_whole_numbers_reach_the_shelfs_mlp_and_targets_may_be_of_any_integer_type():
    counts, labels = np.random.default_rng(0).integers(0, 9, (60, 8)), np.arange(60).astype(np.uint16) % 3
    stream = from_tensors(counts, labels, split="time", num_tasks=2)
    x, y, *_ = next(iter(stream[0].train))
    assert x.dtype == y.dtype == torch.int64
    assert MLP((8,), 3)(x).shape == (len(x), 3)
