import subprocess
import sys

import pytest

from corestream.studies.locks import LockedError, locked

HOLD = """
import sys, pathlib
from corestream.studies.locks import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=f"pid {holder.pid}"), locked(tmp_path):
            pass
        holder.kill()
    with locked(tmp_path):  # the lock died with its holder
        pass
    with locked(tmp_path):  # and goes when its holder lets go
        pass


def test_a_lock_that_was_removed_at_the_door_is_nobodys(tmp_path, monkeypatch):
    def flock(file, operation):
        """Another process gives its folder up in the moment before this one has the lock."""
        (tmp_path / "lock").unlink()

    monkeypatch.setattr("corestream.studies.locks.fcntl.flock", flock)
    with pytest.raises(LockedError, match="has just removed"), locked(tmp_path):
        pass
