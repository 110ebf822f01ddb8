"""Torch's threads must not turn in circles on a machine with other work."""

import os
import subprocess
import sys

import pytest

# what the environment says when torch is first looked for
SHOW = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"))
sys.meta_path.insert(0, Watch())
import corestream
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "None")],
)
def test_they_wait_briefly_unless_the_user_says_otherwise(given: dict[str, str], found: str) -> None:
    theirs = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in theirs} | given
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [found]
