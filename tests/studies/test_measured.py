from pathlib import Path

import pytest
import torch

from corestream.errors import DataError
from corestream.studies.measured import Source, distances, figure3
from corestream.studies.picture_sets import Effort, Pictures, as_colour_32, permuted

LITTLE = Effort(train=100, test=50, samples=12, steps=20)


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
    assert len(found.numbers) == 2 * 10 * 5  # seeds, looks, four sizes and the irrelevant dataset
    assert {number["setting"] for number in found.numbers} == {"MLP on Rotated Digits"}


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
