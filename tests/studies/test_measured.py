from pathlib import Path
from statistics import fmean

import pytest
import torch

from corestream.errors import DataError
from corestream.studies.measured import Source, distances, figure3
from corestream.studies.picture_sets import Course, Effort, Pictures, as_colour_32, permuted

LITTLE = Effort(train=100, test=50, samples=12, mlp=Course(300, 4), resnet=Course(2, 2))


def test_single_samples_on_the_embedded_digits() -> None:
    found = figure3(Source("rotated-digits", effort=LITTLE))
    assert len(found.numbers) == 12
    assert "Rotated Digits, task 2" in found.note
    assert {number["label"] for number in found.numbers} <= set(range(10))


def test_offline_without_files_the_digits_stand_in(tmp_path: Path) -> None:
    found = figure3(Source(data_dir=tmp_path, offline=True, effort=LITTLE))
    assert "Rotated Digits" in found.note


def test_a_damaged_or_missing_dataset_is_not_hidden_when_it_could_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> Pictures:
        raise DataError("mnist is damaged")

    monkeypatch.setattr("corestream.studies.measured.dataset", missing)
    with pytest.raises(DataError, match="damaged"):
        figure3(Source(data_dir=tmp_path, offline=False, effort=LITTLE))


def test_distances_are_measured_for_every_seed() -> None:
    found = distances(Source("rotated-digits", effort=LITTLE), seeds=(0, 1))
    assert len(found.numbers) == 2 * 4 * 6  # seeds, looks, four sizes and two kinds of irrelevant data
    assert {number["setting"] for number in found.numbers} == {"MLP on Rotated Digits"}
    assert sorted({number["step"] for number in found.numbers}) == [0, 100, 200, 300]


def test_once_trained_every_batch_lies_nearer_than_irrelevant_data() -> None:
    found = distances(Source("rotated-digits", effort=LITTLE), seeds=range(5))

    def mean(source: str) -> float:
        return fmean(n["l2"] for n in found.numbers if n["source"] == source and n["step"] == 300)

    batches = [mean(f"batch of {size}") for size in (10, 20, 50, 100)]
    assert batches == sorted(batches, reverse=True)
    assert batches[0] < min(mean("irrelevant dataset"), mean("irrelevant batch of 10"))


def test_both_networks_are_measured_and_the_figure_says_on_what(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(name: str, *_: object, **__: object) -> Pictures:
        shape = (1, 28, 28) if name == "mnist" else (3, 32, 32)
        part = (torch.rand(24, *shape), torch.arange(24) % 10)
        return Pictures(part, part, f"{name}: a sample")

    monkeypatch.setattr("corestream.studies.measured.dataset", few)
    found = distances(Source(effort=LITTLE), seeds=(0,))
    assert {number["setting"] for number in found.numbers} == {"MLP on MNIST", "ResNet-18 on CIFAR-10"}
    for words in ("mnist: a sample", "cifar10: a sample", "12 images of permuted MNIST", "irrelevant batch"):
        assert words in found.note


def test_permuting_moves_pixels_the_same_way_in_every_image() -> None:
    images = torch.arange(2 * 9.0).view(2, 1, 3, 3)
    moved = permuted(images)
    assert torch.equal(moved[1], moved[0] + 9)
    assert moved[0].flatten().sort().values.tolist() == list(range(9))
    assert not torch.equal(moved, images)


def test_grey_pictures_become_colour_of_32() -> None:
    wide = as_colour_32(torch.ones(1, 1, 28, 28))
    assert wide.shape == (1, 3, 32, 32)
    assert wide.sum() == 3 * 28 * 28
