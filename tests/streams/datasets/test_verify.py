import hashlib
from dataclasses import replace

from corestream.streams.datasets import SOURCES
from corestream.streams.datasets.verify import DAMAGED, MISSING, OTHER, PUBLISHED, UNKNOWN, verify


def states(source, root) -> list[str]:
    return [verdict.state for verdict in verify(source, root)]


def test_the_published_files_are_known_by_their_checksums(publisher) -> None:
    root = publisher.mnist()
    files = {file: hashlib.md5((root / file).read_bytes()).hexdigest() for file in SOURCES["mnist"].files}
    assert states(replace(SOURCES["mnist"], files=files), root) == [PUBLISHED] * 4


def test_a_sample_is_whole_but_not_the_published_one(publisher) -> None:
    assert states(SOURCES["mnist"], publisher.mnist()) == [OTHER] * 4


def test_the_damaged_file_is_the_one_named(publisher) -> None:
    root = publisher.mnist()
    path = root / "mnist/t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    verdicts = {verdict.file.split("/")[1][:10]: verdict for verdict in verify(SOURCES["mnist"], root)}
    assert verdicts["t10k-image"].state == DAMAGED
    assert verdicts["t10k-image"].detail
    assert verdicts["train-imag"].state == UNKNOWN


def test_a_missing_file_is_missing(publisher) -> None:
    root = publisher.mnist()
    (root / "mnist/t10k-images-idx3-ubyte.gz").unlink()
    assert states(SOURCES["mnist"], root) == [UNKNOWN, UNKNOWN, MISSING, UNKNOWN]
