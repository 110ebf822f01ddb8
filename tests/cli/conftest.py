"""`corestream …` inside this process: fast, with its exit status and what it printed."""

import signal
import sys
from dataclasses import dataclass

import pytest

from corestream.cli import main


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch, capsys):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["corestream", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        printed = capsys.readouterr()
        return Answer(status, printed.out, printed.err)

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)
