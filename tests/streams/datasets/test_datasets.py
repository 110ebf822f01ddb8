from pathlib import Path

import pytest

from corestream.errors import ConfigError, DataError
from corestream.streams.datasets import data_root, load, source


def test_the_data_folder_is_the_one_given_then_the_one_named_then_the_cache(
    monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CORESTREAM_DATA", raising=False)
    assert data_root(None) == tmp_path / "cache" / "corestream"
    monkeypatch.setenv("CORESTREAM_DATA", str(tmp_path / "named"))
    assert data_root(None) == tmp_path / "named"
    assert data_root(tmp_path / "given") == tmp_path / "given"


def test_a_sample_is_used_and_says_so(publisher, monkeypatch) -> None:
    monkeypatch.setenv("CORESTREAM_DATA", str(publisher.mnist(train=40, test=20)))
    data = load("mnist", offline=True)
    assert data.note == "mnist: a sample, 40 of 60,000 training and 20 of 10,000 test images"


def test_a_dataset_in_use_is_read_once_and_a_changed_file_again(publisher) -> None:
    root = publisher.mnist()
    first = load("mnist", data_dir=root, offline=True)
    assert load("mnist", data_dir=root, offline=True) is first
    publisher.mnist(train=50)
    assert len(load("mnist", data_dir=root, offline=True).train) == 50


def test_one_missing_file_of_four_is_the_one_named(publisher) -> None:
    root = publisher.mnist()
    (root / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError) as caught:
        load("mnist", data_dir=root, offline=True)
    assert "t10k-labels" in str(caught.value)
    assert "train-images" not in str(caught.value)


def test_an_unknown_name_is_answered_with_the_known() -> None:
    with pytest.raises(ConfigError, match="fashion-mnist"):
        source("fashion")


def test_digits_need_no_file(tmp_path: Path) -> None:
    data = load("digits", data_dir=tmp_path / "nowhere", offline=True)
    assert data.train.images.shape == (1797, 1, 8, 8)
    assert int(data.train.images.max()) == 16
    assert data.note == ""
