"""A method and a benchmark of one's own on the command line."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

OWN = '''
import torch
from corestream import learners
from corestream.learners import OCS, Coreset, Method
from corestream.learners.settings import CoresetSettings, OCSSettings
from corestream.streams import BENCHMARKS
from corestream.streams.benchmarks.recipe import domain_stream
from corestream.streams.benchmarks.registry import Benchmark
from corestream.streams.datasets import load


class First(Coreset):
    """PLACE"""

    def choose(self, samples, k):
        return torch.arange(min(k, len(samples)))


class Mine(OCS):
    pass


def upright(request):
    digits = load("digits")
    order = torch.arange(len(digits.train))
    return domain_stream(
        request,
        digits.divided(order[500:], order[:500]),
        renders=[lambda images: images.float() / 16] * 2,
        titles=["one", "two"],
        input_shape=(1, 8, 8),
        scale=None,
        batch_size=50,
    )


learners.register(Method("first", "the first", First, CoresetSettings, "shares", "class"))
learners.register(Method("mine", "like OCS", Mine, OCSSettings, "shares", "class", like="ocs"))
BENCHMARKS["upright"] = Benchmark("upright", "twice the same", upright, settings={"batch_size": 20, "lr": 0.03})
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    monkeypatch.setenv("CORESTREAM_IMPORT", str(path))
    return path


@pytest.fixture
def cli():
    """In a process of its own: what is imported stays."""

    def call(*arguments):
        command = [sys.executable, "-m", "corestream", *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return SimpleNamespace(status=ended.returncode, out=ended.stdout, err=ended.stderr)

    return call


def _settings(out):
    records = [json.loads(path.read_text())["config"] for path in out.glob("*/config.json")]
    return {record["method"]: record["settings"] for record in records}


def test_own_methods_and_streams_are_compared_in_worker_processes(cli, own, tmp_path):
    out = tmp_path / "runs"
    answer = cli(
        "compare",
        "upright",
        "--methods",
        "first,mine",
        "--seeds",
        "1",
        "--sweeps",
        "1",
        "--json",
        "--out",
        out,
    )
    assert answer.status == 0, answer.err
    assert {name: row["runs"] for name, row in json.loads(answer.out)["methods"].items()} == {
        "first": 1,
        "mine": 1,
    }
    assert {s["batch_size"] for s in _settings(out).values()} == {20}
    assert {s["lr"] for s in _settings(out).values()} == {0.03}


def test_changed_code_is_another_run(cli, own, tmp_path):
    command = (
        "run",
        "rotated-digits",
        "--method",
        "first",
        "--tasks",
        "1",
        "--sweeps",
        "1",
        "--out",
        tmp_path / "runs",
    )
    assert cli(*command).status == 0
    assert cli(*command).status == 0
    assert len(list((tmp_path / "runs").iterdir())) == 1
    own.write_text(OWN.replace("PLACE", "the first ones"))
    assert cli(*command).status == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert cli("report", tmp_path / "runs").status == 0
    assert "first (sweeps 1) (older version, run 2" in (tmp_path / "runs" / "report.html").read_text()


def test_a_report_does_not_need_the_code_of_its_runs(cli, own, tmp_path, monkeypatch):
    out = tmp_path / "runs"
    command = ("run", "rotated-digits", "--method", "first", "--tasks", "1", "--sweeps", "1", "--out", out)
    assert cli(*command).status == 0
    monkeypatch.delenv("CORESTREAM_IMPORT")
    answer = cli("report", out)
    assert answer.status == 0, answer.err
    assert "CORESTREAM_IMPORT=YOUR_FILE.py corestream run" in (out / "report.html").read_text()
    assert "first on rotated-digits --tasks 1, seed" in " ".join(
        cli("list", "runs", "--out", out).out.split()
    )


def test_files_of_one_name_are_told_apart(cli, own, tmp_path, monkeypatch):
    second = tmp_path / "more" / "own.py"
    second.parent.mkdir()
    second.write_text(OWN.replace('"first"', '"second"').replace('"mine"', '"yours"'))
    monkeypatch.setenv("CORESTREAM_IMPORT", f"{own}{os.pathsep}{second}")
    out = tmp_path / "runs"
    for method in ("first", "second"):
        command = ("run", "rotated-digits", "--method", method, "--tasks", "1", "--sweeps", "1", "--out", out)
        assert cli(*command).status == 0
    found = {json.loads(path.read_text())["config"]["fingerprint"] for path in out.glob("*/config.json")}
    assert len(found) == 2


def test_a_file_that_cannot_be_imported_is_named(cli, own):
    own.write_text("import math\nimport nowhere_to_be_found")
    answer = cli("list", "methods")
    assert answer.status == 2
    assert "own.py, which cannot be imported: ModuleNotFoundError" in answer.err
    assert answer.err.endswith("'nowhere_to_be_found' (own.py:2)\n")


def test_a_file_that_takes_a_methods_name_is_refused(cli, own):
    own.write_text(OWN.replace('Method("first"', 'Method("ocs"'))
    answer = cli("list", "methods")
    assert answer.status == 2
    assert "there is a method 'ocs' already; give this one another name" in answer.err


def test_what_fails_in_a_file_of_ones_own_is_told_with_its_line(cli, own, tmp_path):
    own.write_text(OWN.replace("torch.arange(min(k, len(samples)))", "nowhere"))
    line = 1 + OWN[: OWN.index("return torch.arange")].count("\n")
    asked = ["--methods", "first", "--seeds", "1", "--tasks", "1", "--sweeps", "1"]
    answer = cli("compare", "rotated-digits", *asked, "--out", tmp_path / "runs", "--device", "cpu")
    assert answer.status == 1
    assert f"failed: NameError: name 'nowhere' is not defined (own.py:{line})" in answer.err


@pytest.mark.parametrize("name", ["first:best", "first,second"])
def test_a_name_that_could_not_be_compared_is_refused(cli, own, name):
    own.write_text(OWN.replace('Method("first"', f'Method("{name}"'))
    answer = cli("list", "methods")
    assert answer.status == 2
    assert f"the method's name is '{name}'; take one without ':' and ','" in answer.err
    assert "Traceback" not in answer.err


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The installed script, which does not look for modules in the current folder; in a folder that has a queue.py."""
    (tmp_path / "script").mkdir()
    path = tmp_path / "script" / "corestream"
    path.write_text("from corestream.cli import main\nmain()\n")
    (tmp_path / "queue.py").write_text("raise RuntimeError('not the queue of Python')\n")
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        command = [sys.executable, path, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return call


@pytest.mark.parametrize("method", ["first", "finetune"])
def test_a_file_beside_that_is_called_like_a_module_of_pythons_is_none(script, own, monkeypatch, method):
    if method == "first":
        monkeypatch.setenv("CORESTREAM_IMPORT", own.name)
    else:
        monkeypatch.delenv("CORESTREAM_IMPORT")
    asked = ["--methods", method, "--seeds", "1", "--tasks", "1", "--sweeps", "1", "--device", "cpu"]
    answer = script("compare", "rotated-digits", *asked)
    assert answer.returncode == 0, answer.stderr


def test_modules_of_the_current_folder_are_found_by_workers_where_the_command_finds_them(
    cli, own, monkeypatch
):
    monkeypatch.chdir(own.parent)
    monkeypatch.setenv("CORESTREAM_IMPORT", own.stem)
    asked = ["--methods", "first", "--seeds", "1", "--tasks", "1", "--sweeps", "1", "--device", "cpu"]
    answer = cli("compare", "rotated-digits", *asked)
    assert answer.status == 0, answer.err
