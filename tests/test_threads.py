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


@pytest.mark.parametrize(("given", "found"), [(None, "10000"), ("77", "77")])
def test_they_wait_briefly_unless_the_user_says_otherwise(given: str | None, found: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    environment |= {} if given is None else {"GOMP_SPINCOUNT": given}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [found]
