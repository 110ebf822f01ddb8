import gzip
import json
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corestream.cli.data import app
from corestream.errors import ConfigError, DataError
from corestream.streams.datasets import SOURCES


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "140"}).invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    for file in SOURCES["mnist"].files:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        shape = (20, 28, 28) if "images" in file else (20,)
        size = 20 * 784 if "images" in file else 20
        path.write_bytes(
            gzip.compress(struct.pack(f">I{len(shape)}I", 0x800 + len(shape), *shape) + bytes(size))
        )
    return tmp_path


def test_list_tells_what_is_there(mnist: Path) -> None:
    lines = {
        line.split()[1]: line for line in run("list", "--data-dir", str(mnist)).splitlines() if "│" in line
    }
    assert "there, a sample" in lines["mnist"]
    assert "missing" in lines["cifar100"]
    assert "built in" in lines["digits"]
    (mnist / "mnist/train-images-idx3-ubyte.gz").unlink()
    assert "1 of 4 missing" in run("list", "--data-dir", str(mnist))


def test_list_names_the_published_number_and_tells_samples_by_size(mnist: Path) -> None:
    text = run("list", "--data-dir", str(mnist))
    assert "published images" in text
    assert "A sample: less than half the published bytes" in text
    with open(mnist / "mnist/train-images-idx3-ubyte.gz", "ab") as file:
        file.truncate(11_500_000)  # nothing is read
    text = run("list", "--data-dir", str(mnist))
    assert "there" in text
    assert "sample" not in text


def test_programs_get_json(mnist: Path) -> None:
    where = ("--data-dir", str(mnist), "--json")
    listed = {entry["dataset"]: entry for entry in json.loads(run("list", *where))}
    assert listed["mnist"]["files"] == "there, a sample"
    assert listed["svhn"]["published_images"] == 99_289
    assert json.loads(run("fetch", "mnist", *where)) == [{"dataset": "mnist", "state": "there already"}]
    assert {entry["state"] for entry in json.loads(run("verify", *where))} == {
        "whole, but not the published one"
    }


def test_the_environment_names_the_folder(mnist: Path, monkeypatch) -> None:
    monkeypatch.setenv("CORESTREAM_DATA", str(mnist))
    assert "whole, but not the published one" in run("verify")


def test_verify_names_the_damaged_file_and_fails(mnist: Path) -> None:
    path = mnist / "mnist/t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-10])
    result = CliRunner().invoke(app, ["verify", "--data-dir", str(mnist)])
    assert "t10k-images-idx3-ubyte.gz: damaged" in result.stdout
    assert isinstance(result.exception, DataError)
    assert "1 file is damaged or missing" in str(result.exception)


def test_verify_fails_on_what_was_asked_for_and_is_not_there(mnist: Path) -> None:
    with pytest.raises(DataError, match="3 files are damaged or missing"):
        run("verify", "cifar100", "--data-dir", str(mnist))
    assert "built in" in run("verify", "digits", "--data-dir", str(mnist))
    with pytest.raises(DataError, match="holds no dataset"):
        run("verify", "--data-dir", str(mnist / "mnist"))


def test_fetch_leaves_what_is_there(mnist: Path) -> None:
    assert (
        run("fetch", "mnist", "digits", "--data-dir", str(mnist))
        == "mnist: there already\ndigits: there already\n"
    )


def test_an_unknown_dataset_is_answered_with_the_nearest(mnist: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'mnist'. known are digits, mnist"):
        run("fetch", "mnits", "--data-dir", str(mnist))
