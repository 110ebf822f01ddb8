"""Tiny files in the publishers' formats, and the real ones where they lie beside the checkout."""

import csv
import fcntl
import gzip
import hashlib
import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

PREPARE = Path(__file__).resolve().parents[3] / "shared" / "data" / "prepare.py"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder that prepare.py lays out, made once and kept for later sessions."""
    if not PREPARE.is_file():
        pytest.skip(f"the real files are not here: no {PREPARE}")
    key = hashlib.sha256(PREPARE.read_bytes()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"corestream-real-data-{os.getuid()}-{key}"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            making = folder.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            subprocess.run([sys.executable, str(PREPARE), str(making)], check=True, capture_output=True)
            making.rename(folder)
    return folder


class Publisher:
    """Writes small datasets as their publishers do. Image i of a set is filled with a grey that tells i."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def idx(self, name: str, array: np.ndarray) -> Path:
        header = struct.pack(">I", 0x0800 + array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
        path = self.path(name)
        path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))
        return path

    def mnist(self, name: str = "mnist", train: int = 40, test: int = 20) -> Path:
        for half, count in (("train", train), ("t10k", test)):
            numbers = np.arange(count)
            images = np.broadcast_to(numbers[:, None, None], (count, 28, 28))
            self.idx(f"{name}/{half}-images-idx3-ubyte.gz", images)
            self.idx(f"{name}/{half}-labels-idx1-ubyte.gz", numbers % 10)
        return self.root

    def pickle(self, name: str, content: object) -> Path:
        path = self.path(name)
        path.write_bytes(b"\x80\x02" + python2_pickle(content) + b".")
        return path

    def cifar10(self, per_batch: int = 10) -> Path:
        folder = "cifar-10-batches-py"
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            self.pickle(f"{folder}/{name}", cifar_content(per_batch, 10, b"labels"))
        self.pickle(f"{folder}/batches.meta", {b"label_names": [b"class %d" % i for i in range(10)]})
        return self.root

    def cifar100(self, train: int = 400, test: int = 200) -> Path:
        for name, count in (("train", train), ("test", test)):
            self.pickle(f"cifar-100-python/{name}", cifar_content(count, 100, b"fine_labels"))
        self.pickle("cifar-100-python/meta", {b"fine_label_names": [b"class %d" % i for i in range(100)]})
        return self.root

    def svhn(self, count: int = 30, compress: bool = True) -> Path:
        for name in ("train", "test"):
            images = np.zeros((32, 32, 3, count), np.uint8)
            images[3, 5, 1] = np.arange(count)
            labels = (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]
            content = {"X": images, "y": labels}
            scipy.io.savemat(self.path(f"svhn/{name}_32x32.mat"), content, do_compression=compress)
        return self.root

    def zip(self, name: str, members: dict[str, bytes]) -> Path:
        path = self.path(name)
        with zipfile.ZipFile(path, "w") as file:
            for member, data in members.items():
                file.writestr(member, data)
        return path

    def gtsrb(self, classes: int = 43, per_class: int = 2) -> Path:
        training: dict[str, bytes] = {}
        for label in range(classes):
            folder = f"GTSRB/Training/{label:05d}"
            rows = [(f"{i:05d}.ppm", label) for i in range(per_class)]
            training |= {f"{folder}/{name}": picture("PPM", (40, 36), i) for i, (name, _) in enumerate(rows)}
            training[f"{folder}/GT-{label:05d}.csv"] = gtsrb_table(rows)
        self.zip("gtsrb/GTSRB-Training_fixed.zip", training)
        rows = [(f"{label:05d}.ppm", label) for label in range(classes)]
        images = {f"GTSRB/Final_Test/Images/{name}": picture("PPM", (40, 36), 7) for name, _ in rows}
        self.zip("gtsrb/GTSRB_Final_Test_Images.zip", images)
        self.zip("gtsrb/GTSRB_Final_Test_GT.zip", {"GT-final_test.csv": gtsrb_table(rows)})
        return self.root

    def tiny_imagenet(self, per_class: int = 2) -> Path:
        top, ids = "tiny-imagenet-200", [f"n{i:08d}" for i in range(200)]
        members = {
            f"{top}/wnids.txt": "\n".join(ids).encode(),
            f"{top}/words.txt": b"n00000000\tcat, pussy\n",
        }
        lines = []
        for label, wordnet_id in enumerate(ids):
            for i in range(per_class):
                name = f"{top}/train/{wordnet_id}/images/{wordnet_id}_{i}.JPEG"
                members[name] = picture("JPEG", (64, 64), label)
            lines.append(f"val_{label}.JPEG\t{wordnet_id}\t0\t0\t10\t10")
            members[f"{top}/val/images/val_{label}.JPEG"] = picture("JPEG", (64, 64), label)
        members[f"{top}/val/val_annotations.txt"] = "\n".join(lines).encode()
        self.zip("tiny-imagenet/tiny-imagenet-200.zip", members)
        return self.root

    def tar(self, name: str, members: dict[str, bytes | tarfile.TarInfo]) -> Path:
        path = self.path(name)
        with tarfile.open(path, "w:gz") as tar:
            for member, data in members.items():
                if isinstance(data, tarfile.TarInfo):
                    tar.addfile(data)
                    continue
                info = tarfile.TarInfo(member)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return path

    def notmnist(self, per_class: int = 10) -> Path:
        members: dict[str, bytes | tarfile.TarInfo] = {
            f"notMNIST_small/{letter}/{i}.png": picture("PNG", (28, 28), i, "L")
            for letter in "ABCDEFGHIJ"
            for i in range(per_class)
        }
        members["notMNIST_small/A/empty.png"] = b""
        self.tar("notmnist/notMNIST_small.tar.gz", members)
        return self.root


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path / "data")


def picture(format: str, size: tuple[int, int], grey: int, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size, grey if mode == "L" else (grey, grey, grey)).save(stream, format)
    return stream.getvalue()


def gtsrb_table(rows: list[tuple[str, int]]) -> bytes:
    text = io.StringIO()
    table = csv.writer(text, delimiter=";", lineterminator="\n")
    table.writerow(["Filename", "Width", "Height", "Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2", "ClassId"])
    table.writerows([name, 40, 36, 5, 5, 34, 30, label] for name, label in rows)
    return text.getvalue().encode()


def cifar_content(count: int, classes: int, key: bytes) -> dict[bytes, object]:
    images = np.zeros((count, 3072), np.uint8)
    images[:, 0] = np.arange(count) % 256
    return {b"data": images, key: [i % classes for i in range(count)], b"batch_label": b"a batch"}


def python2_pickle(value: object) -> bytes:
    """The opcodes a pickle written by Python 2 and NumPy 1 has."""
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(python2_pickle, value)) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(python2_pickle, value)) + b"t"
    if isinstance(value, dict):
        return b"}(" + b"".join(python2_pickle(part) for pair in value.items() for part in pair) + b"u"
    assert isinstance(value, np.ndarray)
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + python2_pickle((0,)) + b"U\x01btR"
    dtype_state = (3, b"|", None, None, None, -1, -1, 0)
    dtype = b"cnumpy\ndtype\n" + python2_pickle((b"u1", 0, 1)) + b"R" + python2_pickle(dtype_state) + b"b"
    state = (
        b"(J\x01\x00\x00\x00"
        + python2_pickle(value.shape)
        + dtype
        + b"\x89"
        + python2_pickle(value.tobytes())
        + b"t"
    )
    return empty + state + b"b"


@pytest.fixture(name="python2_pickle")
def python2_pickle_fixture():
    return python2_pickle
