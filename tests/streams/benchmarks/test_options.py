import pytest

from corestream.errors import ConfigError
from corestream.streams.benchmarks.options import parse_options


def test_texts_become_names_and_numbers() -> None:
    texts = ["full-classes=random", "imbalance_factor=0.05", "classes_per_task=10", "name=a=b"]
    expected = {"full_classes": "random", "imbalance_factor": 0.05, "classes_per_task": 10, "name": "a=b"}
    assert parse_options(texts) == expected


@pytest.mark.parametrize("text", ["random", "=3", "name="])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parse_options([text])
