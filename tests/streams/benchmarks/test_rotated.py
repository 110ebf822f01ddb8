from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from corestream.streams import benchmark


def mnist(root: Path, **options):
    return benchmark("rotated-mnist", data_dir=root, offline=True, **options)


def test_task_t_is_mnist_turned_by_nine_t_degrees(real_data: Path) -> None:
    from corestream.streams.datasets import load

    original = load("mnist", data_dir=real_data, offline=True)
    task = mnist(real_data)[7]
    x, y = task.test.tensors()
    assert x.dtype == torch.float32
    assert torch.equal(y, original.test.labels)
    for i in (0, 77, 9999):
        turned = np.asarray(Image.fromarray(original.test.images[i, 0].numpy()).rotate(63.0))
        assert torch.equal(x[i, 0], torch.from_numpy(turned.copy()).float() / 255)


def test_the_whole_stream_has_the_papers_counts(real_data: Path) -> None:
    card = mnist(real_data).describe()
    assert (card["tasks"], card["classes"], card["input_shape"], card["batch_size"]) == (
        20,
        10,
        [1, 28, 28],
        100,
    )
    assert card["train"] == [60_000] * 20
    assert card["test"] == [10_000] * 20
    assert card["files_note"] == ""
    assert card["titles"][19] == "171°"


def test_imbalanced_rotated_mnist_has_the_papers_counts(real_data: Path) -> None:
    card = mnist(real_data, imbalanced=True).describe()
    counts = list(card["train_per_class"][0].values())
    assert counts == [5923, 674, 595, 613, 584, 5421, 591, 626, 585, 594]
    assert card["train"] == [sum(counts)] * 20
    assert card["test"] == [10_000] * 20


def test_the_papers_random_full_classes_are_an_option(real_data: Path) -> None:
    card = mnist(real_data, imbalanced=True, full_classes="random").describe()
    full = [tuple(label for label, count in task.items() if count > 1000) for task in card["train_per_class"]]
    assert all(len(classes) == 2 for classes in full)
    assert len(set(full)) > 5


def test_the_papers_random_angles_are_an_option(publisher) -> None:
    root = publisher.mnist()
    titles = [task.title for task in mnist(root, angles="random", seed=1)]
    assert len(set(titles)) > 15
    assert titles == [task.title for task in mnist(root, angles="random", seed=1)]
    assert all(0 <= float(title[:-1]) <= 180 for title in titles)


def test_images_stay_bytes_until_they_are_handed_out(publisher) -> None:
    task = mnist(publisher.mnist())[3]
    next(iter(task.train))
    assert task.train._half._pixels[0].dtype == torch.uint8


def test_noise_makes_floats_or_as_in_the_authors_program_bytes(publisher) -> None:
    root = publisher.mnist(train=200)
    floats = mnist(root, noise=0.5)[1].train
    assert float(floats.tensors()[0][floats.is_noise].min()) < -1
    in_bytes = mnist(root, noise=0.5, noise_style="bytes")[1].train
    x = in_bytes.tensors()[0][in_bytes.is_noise]
    assert float(x.min()) == 0.0
    assert float(x.max()) == pytest.approx(1.0)
    assert in_bytes._half._pixels[0].dtype == torch.uint8


def test_two_streams_of_the_same_files_share_the_images(publisher) -> None:
    root = publisher.mnist()
    first, second = mnist(root, seed=0), mnist(root, seed=1)
    assert first.data is second.data


@pytest.mark.parametrize("seed", [0, 3])
def test_digits_are_split_by_seed(seed: int) -> None:
    stream = benchmark("rotated-digits", seed=seed)
    x, _ = stream[0].train.tensors()
    other = benchmark("rotated-digits", seed=seed + 1)[0].train.tensors()[0]
    assert not torch.equal(x, other)
    assert float(x.min()) == 0.0
    assert float(x.max()) == 1.0


def test_imbalanced_digits_draw_two_full_classes_per_task() -> None:
    card = benchmark("rotated-digits", imbalanced=True).describe()
    full = [tuple(label for label, count in task.items() if count > 50) for task in card["train_per_class"]]
    assert all(len(classes) == 2 for classes in full)
    assert len(set(full)) > 4
