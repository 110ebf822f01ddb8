import os
import signal

import pytest

from corestream.studies.stopping import Interrupted, StopRequest


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_becomes_a_request_and_the_handlers_come_back(signum):
    before = signal.getsignal(signum)
    with StopRequest() as stop:
        os.kill(os.getpid(), signum)
        assert stop.signum == signum
        assert signal.getsignal(signum) is before  # a second signal is no longer caught
    assert signal.getsignal(signum) is before


def test_the_exit_status_is_what_a_shell_expects():
    assert Interrupted(signal.SIGINT, "").exit_status == 130
    assert Interrupted(signal.SIGTERM, "").exit_status == 143
