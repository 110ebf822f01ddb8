# ruff: noqa: F821, SIM115 - the names come from outside, and the streams stay open to the end
"""What a forked process of the tests does: become `corestream …` with its own output and limits.

`argv`, `streams` (paths for stdin, stdout and stderr) and `limit` (bytes a file may have, or None) come from whoever
started it.
"""

import os
import resource
import sys

argv: list[str]
streams: list[str]
limit: int | None

if limit is not None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for number, path in enumerate(streams):
    os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_RDWR), number)
sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))
sys.argv = argv

from corestream.cli import main  # noqa: E402

main()
