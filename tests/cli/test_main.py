import os
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest

import corestream.cli
from corestream.errors import ConfigError, DataError, NonFiniteError, RunError
from corestream.studies.stopping import Interrupted


def test_help_names_every_command(cli):
    answer = cli("--help")
    assert answer.status == 0
    for command in ("demo", "run", "compare", "paper", "report", "data", "list", "show"):
        assert f" {command} " in answer.out


def test_the_version_is_that_of_the_package(cli):
    answer = cli("--version")
    assert (answer.status, answer.out.strip()) == (0, f"corestream {version('corestream')}")


def test_the_front_door_opens_without_matplotlib():
    check = "import sys, corestream.cli; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "right"), [("runn", "run"), ("comprae", "compare"), ("reprot", "report"), ("lst", "list")]
)
def test_a_wrong_command_is_answered_with_the_nearest(cli, wrong, right):
    answer = cli(wrong)
    assert answer.status == 2
    assert f"'{right}'" in answer.err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DataError("a file is missing"), 1),
        (RunError("torn"), 1),
        (NonFiniteError("diverged"), 1),
        (ConfigError("no such option"), 2),
        (Interrupted(signal.SIGTERM, "the same command continues"), 143),
        (Interrupted(signal.SIGINT, "the same command continues"), 130),
    ],
)
def test_our_errors_are_told_without_a_traceback_and_with_their_status(cli, monkeypatch, error, status):
    def fail():
        raise error

    monkeypatch.setattr(corestream.cli, "app", fail)
    answer = cli()
    assert answer.status == status
    assert answer.err == f"corestream: {error}\n"


def test_an_error_of_the_program_itself_keeps_its_traceback(monkeypatch):
    def fail():
        raise ZeroDivisionError

    monkeypatch.setattr(corestream.cli, "app", fail)
    monkeypatch.setattr(sys, "argv", ["corestream"])
    with pytest.raises(ZeroDivisionError):
        corestream.cli.main()


def test_a_folder_that_cannot_be_is_told_without_a_traceback(cli):
    answer = cli("list", "runs", "--out", "a" * 300)
    assert answer.status == 1
    # Python 3.14 takes a name that cannot be for one that is not there
    assert "File name too long" in answer.err or "there is no folder" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_that_lacks_a_sign_shows_another(tmp_path, encoding):
    command = [sys.executable, "-m", "corestream", "paper", "hyperparameters", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"?" in done.stdout
