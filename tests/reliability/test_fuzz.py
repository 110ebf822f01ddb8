"""Damaged files of every kind we read: a clean error of ours or a result, never anything else."""

import gzip
import io
import os
import signal
import struct
import tarfile
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save

from corestream.cli.options import FIELDS, gather
from corestream.errors import CorestreamError
from corestream.streams.datasets.archives import extract_tar
from corestream.streams.datasets.cifar import read_cifar100
from corestream.streams.datasets.gtsrb import read_gtsrb
from corestream.streams.datasets.idx import read_idx
from corestream.streams.datasets.notmnist import read_notmnist
from corestream.streams.datasets.svhn import read_svhn
from corestream.studies import checkpoint
from corestream.studies.config import (
    RunConfig,
    default_settings,
    make_config,
    override,
    read_config,
    written_digest,
)
from corestream.studies.events import EventLog, read_events
from corestream.studies.execute import read_accuracy, read_memory
from corestream.studies.files import write_json
from corestream.studies.results import Result, read_results, write_result

THOROUGH = "1" in (os.environ.get("CORESTREAM_THOROUGH"), os.environ.get("CORESTREAM_FUZZ"))
HANG_SECONDS = 60
FUZZ = settings(
    max_examples=2000 if THOROUGH else 200,
    derandomize=not THOROUGH,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

PLACE = st.floats(0, 1, allow_nan=False)
EDIT = st.one_of(
    st.tuples(st.just("flip"), PLACE, st.integers(1, 255)),
    st.tuples(st.just("set"), PLACE, st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("insert"), PLACE, st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("delete"), PLACE, st.integers(1, 400)),
    st.tuples(st.just("repeat"), PLACE, st.integers(1, 400)),
    st.tuples(st.just("cut"), PLACE, st.none()),
    st.tuples(st.just("number"), PLACE, st.sampled_from([0, 1, -1, 2**31 - 1, 2**32 - 1, 2**62, -(2**31)])),
)
EDITS = st.lists(EDIT, min_size=1, max_size=4)


def damaged(content, edits):
    content = bytearray(content)
    for kind, share, value in edits:
        at = int(share * len(content))
        if kind == "flip" and at < len(content):
            content[at] ^= value
        elif kind == "set":
            content[at : at + len(value)] = value
        elif kind == "insert":
            content[at:at] = value
        elif kind == "delete":
            del content[at : at + value]
        elif kind == "repeat":
            content[at:at] = content[at : at + value]
        elif kind == "cut":
            del content[at:]
        elif kind == "number":
            content[at : at + 8] = struct.pack("<q" if value < 2**31 else "<Q", value)
    return bytes(content)


@contextmanager
def only_our_errors():
    """Whatever is not ours fails the test, and so does a reader that does not come back."""

    def hang(signum, frame):
        raise AssertionError(f"the reader did not return within {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    except CorestreamError:
        pass
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def picture(kind, size, mode="RGB"):
    out = io.BytesIO()
    Image.new(mode, size, 100).save(out, kind)
    return out.getvalue()


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def tarred(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def pickled(value):
    """As Python 2 and NumPy 1 wrote it."""
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(pickled, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(pickled(part) for pair in value.items() for part in pair) + b"u"
    rows, columns = value.shape
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    return (
        empty
        + b"(K\x01("
        + pickled(rows)
        + pickled(columns)
        + b"t"
        + kind
        + b"\x89"
        + pickled(value.tobytes())
        + b"tb"
    )


@pytest.mark.parametrize("packed", [True, False], ids=["inside", "outside"])
def test_idx(tmp_path, packed):
    raw = struct.pack(">4I", 0x803, 3, 28, 28) + bytes(3 * 784)
    path = tmp_path / "images.gz"

    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        path.write_bytes(
            gzip.compress(damaged(raw, edits), 1) if packed else damaged(gzip.compress(raw), edits)
        )
        with only_our_errors():
            assert read_idx(path, (28, 28)).shape[1:] == (28, 28)

    fuzz()


@pytest.mark.parametrize("compressed", [True, False])
def test_mat(tmp_path, compressed):
    out = io.BytesIO()
    arrays = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1), np.uint8)}
    scipy.io.savemat(out, arrays, do_compression=compressed)
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(out.getvalue())

    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        (tmp_path / "svhn" / "train_32x32.mat").write_bytes(damaged(out.getvalue(), edits))
        with only_our_errors():
            assert read_svhn(tmp_path).train.images.shape[1:] == (3, 32, 32)

    fuzz()


TABLE = b"Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n00000.ppm;40;36;5;5;34;30;0\n00001.ppm;40;36;5;5;34;30;1\n"
SIGNS = {f"{number:05d}.ppm": picture("PPM", (40, 36)) for number in range(2)}


def write_gtsrb(root, training):
    (root / "gtsrb").mkdir(exist_ok=True)
    (root / "gtsrb" / "GTSRB-Training_fixed.zip").write_bytes(training)
    (root / "gtsrb" / "GTSRB_Final_Test_Images.zip").write_bytes(zipped(SIGNS))
    (root / "gtsrb" / "GTSRB_Final_Test_GT.zip").write_bytes(zipped({"GT.csv": TABLE}))


def test_csv(tmp_path):
    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        signs = {f"GTSRB/00000/{name}": data for name, data in SIGNS.items()}
        write_gtsrb(tmp_path, zipped({**signs, "GTSRB/00000/GT.csv": damaged(TABLE, edits)}))
        with only_our_errors():
            assert read_gtsrb(tmp_path).train.images.shape[1:] == (3, 32, 32)

    fuzz()


def test_zip(tmp_path):
    signs = {f"GTSRB/00000/{name}": data for name, data in SIGNS.items()}
    whole = zipped({**signs, "GTSRB/00000/GT.csv": TABLE})

    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        write_gtsrb(tmp_path, damaged(whole, edits))
        with only_our_errors():
            read_gtsrb(tmp_path)

    fuzz()


LETTERS = {f"notMNIST_small/{letter}/x.png": picture("PNG", (28, 28), "L") for letter in "AB"}


@pytest.mark.parametrize("packed", [True, False], ids=["inside", "outside"])
def test_tar(tmp_path, packed):
    raw = tarred({**LETTERS, "notMNIST_small/C/empty.png": b""})
    (tmp_path / "notmnist").mkdir()
    path = tmp_path / "notmnist" / "notMNIST_small.tar.gz"

    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        path.write_bytes(
            gzip.compress(damaged(raw, edits), 1) if packed else damaged(gzip.compress(raw), edits)
        )
        with only_our_errors():
            read_notmnist(tmp_path)

    fuzz()


NAMES = st.sampled_from(
    ["", "/", "..", ".", "a", "folder", "../../x", "/etc/x", "C:\\x", "a\\..\\b", "\0", "é" * 60]
)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)


def test_no_archive_writes_outside_its_target(tmp_path):
    archive, target = tmp_path / "archive.tar.gz", tmp_path / "sandbox" / "target"

    @FUZZ
    @given(st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), KINDS, NAMES), min_size=1, max_size=5))
    def fuzz(members):
        with tarfile.open(archive, "w:gz") as file:
            for parts, kind, link in members:
                info = tarfile.TarInfo("/".join(parts))
                info.type, info.linkname, info.size = kind, link, 4 if kind == tarfile.REGTYPE else 0
                file.addfile(info, io.BytesIO(b"data"))
        with only_our_errors():
            extract_tar(archive, target, "folder")
        assert {path.name for path in tmp_path.iterdir()} <= {"archive.tar.gz", "sandbox"}
        assert {path.name for path in (tmp_path / "sandbox").iterdir()} <= {"target"}
        assert not any(path.is_symlink() for path in target.rglob("*"))
        assert {path.name for path in target.iterdir()} <= {"folder"}

    fuzz()


def test_pickle(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    content = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1], b"batch_label": b"training"}
    whole = b"\x80\x02" + pickled(content) + b"."
    (folder / "test").write_bytes(whole)
    (folder / "meta").write_bytes(b"\x80\x02" + pickled({b"fine_label_names": [b"x"] * 100}) + b".")

    @FUZZ
    @given(EDITS, st.booleans())
    def fuzz(edits, around_the_pixels):
        # the pixels are most of the file: half of the damage is done to what surrounds them
        short = pickled({**content, b"data": np.zeros((0, 3072), np.uint8), b"fine_labels": []})
        (folder / "train").write_bytes(
            damaged(b"\x80\x02" + short + b"." if around_the_pixels else whole, edits)
        )
        with only_our_errors():
            assert read_cifar100(tmp_path).train.images.shape[1:] == (3, 32, 32)

    fuzz()


def test_toml(tmp_path):
    text = b'benchmark = "rotated-digits"\nmethods = ["ocs"]\nseeds = 3\nnoise = 0.6\n[settings]\ntau = 1e3\nweights = [1, 0, 1]\n'
    path = tmp_path / "study.toml"
    plain = make_config("rotated-digits", "ocs")

    @FUZZ
    @given(
        st.one_of(
            EDITS.map(lambda edits: damaged(text, edits)), st.binary(max_size=200), st.text().map(str.encode)
        )
    )
    def fuzz(content):
        path.write_bytes(content)
        with only_our_errors():
            values = gather(path, {}, FIELDS)
            override(default_settings(plain), values["settings"], "ocs")

    fuzz()


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_checkpoint(tmp_path, ending):
    folder = tmp_path / "checkpoint"
    for step in range(2):
        checkpoint.save(folder, "d" * 16, {"weight": torch.arange(20.0) + step}, {"position": {"step": step}})
    newest = sorted(folder.glob(f"*.{ending}"))[-1]
    whole = newest.read_bytes()

    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        newest.write_bytes(damaged(whole, edits))
        with only_our_errors():
            found = checkpoint.load(folder, "d" * 16)
            step = found.facts["position"]["step"]  # the newest where the damage left its meaning alone
            assert step in (0, 1)
            assert torch.equal(found.tensors["weight"], torch.arange(20.0) + step)

    fuzz()


def test_events(tmp_path):
    log = EventLog(tmp_path)
    for number in range(3):
        log.write("task", task=number, accuracies=[0.5, None])
    whole = log.path.read_bytes()

    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        log.path.write_bytes(damaged(whole, edits))
        with only_our_errors():
            assert all(isinstance(event["event"], str) for event in read_events(tmp_path))
        with only_our_errors():
            EventLog(tmp_path).write("resumed")

    fuzz()


@pytest.mark.parametrize("name", ["config.json", "accuracy.json", "memory.safetensors"])
def test_run_folders(tmp_path, name):
    config = make_config("rotated-digits", "ocs")
    record = {"config": config.to_dict(), "format": 2, "environment": {}}
    write_json(tmp_path / "config.json", record)
    write_json(
        tmp_path / "accuracy.json",
        {"status": "done", "average_accuracy": 0.5, "matrix": [[0.5]], "digest": config.digest()},
    )
    (tmp_path / "memory.safetensors").write_bytes(save({"inputs": torch.rand(3, 1, 2, 2)}))
    read = {
        "config.json": lambda: read_config(tmp_path / name)[0],
        "accuracy.json": lambda: read_accuracy(tmp_path),
    }
    whole = (tmp_path / name).read_bytes()

    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        (tmp_path / name).write_bytes(damaged(whole, edits))
        with only_our_errors():
            found = read.get(name, lambda: read_memory(tmp_path))()
            assert isinstance(found, RunConfig | dict)
        with only_our_errors():
            assert len(written_digest(tmp_path / "config.json")) == 16

    fuzz()


def test_kept_results(tmp_path):
    config = make_config("rotated-digits", "ocs").to_dict()
    found = {"matrix": [[0.5, None], [0.4, 0.6]], "average_accuracy": 0.5, "forgetting": 0.1}
    path = write_result(Result(config, found, seconds=3.0), tmp_path)
    whole = path.read_bytes()

    @FUZZ
    @given(EDITS)
    def fuzz(edits):
        path.write_bytes(damaged(whole, edits))
        with only_our_errors():
            (result,) = read_results(tmp_path)
            assert result.status in ("done", "diverged", "failed")

    fuzz()
