from pathlib import Path

import pytest
import torch

from corestream.errors import ConfigError
from corestream.streams import benchmark


def cifar(root: Path, **options):
    return benchmark("split-cifar100", data_dir=root, offline=True, **options)


def test_split_cifar100_has_the_papers_counts(real_data: Path) -> None:
    stream = cifar(real_data)
    card = stream.describe()
    assert (card["tasks"], card["classes"], card["outputs"], card["scenario"]) == (20, 100, 100, "task")
    assert card["train"] == [2500] * 20
    assert card["test"] == [500] * 20
    assert stream.classes_of(3) == (15, 16, 17, 18, 19)
    x, y, task = next(iter(stream[3].train))
    assert x.shape == (20, 3, 32, 32)
    assert set(y.tolist()) <= {15, 16, 17, 18, 19}
    assert task.tolist() == [3] * 20
    assert 0 <= float(x.min()) < float(x.max()) <= 1


def test_the_long_tail_has_the_programs_counts(real_data: Path) -> None:
    card = cifar(real_data, imbalanced=True).describe()
    counts = sorted((count for task in card["train_per_class"] for count in task.values()), reverse=True)
    assert counts == [int(500 * 0.1 ** (i / 99)) for i in range(100)]
    assert card["test"] == [500] * 20


def test_the_papers_mu_is_an_option(real_data: Path) -> None:
    card = cifar(real_data, imbalanced=True, imbalance_factor=0.05).describe()
    assert min(count for task in card["train_per_class"] for count in task.values()) == 25


def test_the_class_scenario_has_five_tasks_and_no_task_number(publisher) -> None:
    stream = cifar(publisher.cifar100(), scenario="class")
    assert len(stream) == 5
    assert stream.classes_of(1) == tuple(range(20, 40))
    assert len(next(iter(stream[0].train))) == 2
    assert stream.num_classes == 100


def test_the_papers_random_classes_are_an_option(publisher) -> None:
    root = publisher.cifar100()
    stream = cifar(root, class_order="random", seed=2)
    classes = [label for task in stream for label in task.classes]
    assert sorted(classes) == list(range(100))
    assert classes != list(range(100))
    assert classes == [label for task in cifar(root, class_order="random", seed=2) for label in task.classes]


def test_classes_per_task_must_divide_the_classes(publisher) -> None:
    root = publisher.cifar100()
    assert len(cifar(root, classes_per_task=10)) == 10
    with pytest.raises(ConfigError, match="classes_per_task=7"):
        cifar(root, classes_per_task=7)
    with pytest.raises(ConfigError, match="classes_per_task=0"):
        cifar(root, classes_per_task=0)


def test_flipped_labels_stay_in_the_task(publisher) -> None:
    train = cifar(publisher.cifar100(), label_noise=1.0)[2].train
    assert set(train.targets.tolist()) <= set(range(10, 15))
    assert not (train.targets == train.original_targets).any()


def test_the_joint_stream_tells_the_task_of_every_sample(publisher) -> None:
    stream = cifar(publisher.cifar100())
    x, y, task = stream.joint()[0].train.tensors()
    assert torch.equal(task, y // 5)
    assert len(x) == 400


def test_split_tinyimagenet_has_its_counts(real_data: Path) -> None:
    stream = benchmark("split-tinyimagenet", data_dir=real_data, offline=True)
    card = stream.describe()
    assert (card["tasks"], card["classes"], card["input_shape"]) == (20, 200, [3, 64, 64])
    assert card["train"] == [350] * 20
    assert card["test"] == [80] * 20
    assert "a sample, 7,000 of 100,000" in card["files_note"]
    assert len(benchmark("split-tinyimagenet", data_dir=real_data, offline=True, scenario="class")) == 5
