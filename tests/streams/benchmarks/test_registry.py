import json

import numpy as np
import pytest

from corestream import benchmark
from corestream.errors import ConfigError
from corestream.streams import BENCHMARKS
from corestream.streams.benchmarks.registry import Benchmark, Number

MINE = Benchmark(
    "mine", "", lambda request: None, options={"share": Number(0.5, most=1), "count": Number(2, whole=True)}
)


@pytest.mark.parametrize(
    ("name", "asked", "needed"),
    [
        ("rotated-digits", {"full_classes": "fixed"}, "imbalanced"),
        ("rotated-digits", {"full_classes": "fixed", "noise": 0.5}, "imbalanced"),
    ],
)
def test_an_option_that_means_nothing_here_is_refused(name, asked, needed):
    with pytest.raises(ConfigError, match=f"means nothing without {needed}; give that too, or leave it out"):
        benchmark(name, tasks=1, **asked)


def test_options_are_idle_by_what_the_stream_is():
    mnist = BENCHMARKS["rotated-mnist"]
    asked = mnist.checked_options({"noise_style": "bytes"})
    with pytest.raises(ConfigError, match="noise_style=bytes means nothing without noise"):
        mnist.refuse_idle(asked, imbalanced=True, noise=0.0)
    mnist.refuse_idle(asked, imbalanced=False, noise=0.4)
    mnist.refuse_idle(mnist.checked_options({"noise_style": "float"}), imbalanced=False, noise=0.0)


def test_numbers_of_numpy_are_taken_and_recorded_as_plain_ones() -> None:
    checked = MINE.checked_options({"share": np.float32(0.25), "count": np.int64(3)})
    assert json.dumps(checked) == '{"share": 0.25, "count": 3}'


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("noize", "did you mean 'noise'"),
        ("shares", "did you mean 'share'"),
        ("colour", "its own are share, count; every benchmark takes seed, "),
        ("noise", "noise is not among the options of mine's own, share, count: every benchmark takes it"),
    ],
)
def test_an_option_that_is_not_there_is_answered_with_those_that_are(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MINE.checked_options({name: 0.5})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share", True),
        ("share", np.bool_(True)),
        ("share", np.float64("nan")),
        ("share", 2),
        ("share", "1"),
        ("count", True),
        ("count", np.float32(3)),
        ("count", np.int8(0)),
    ],
)
def test_what_is_no_positive_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name}=.*expected a positive"):
        MINE.checked_options({name: value})
