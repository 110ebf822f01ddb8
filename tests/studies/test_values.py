from typing import Any, Literal

import pytest

from corestream.errors import ConfigError
from corestream.studies.values import convert, describe


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("3", int, 3),
        (3, int, 3),
        ("0.5", float, 0.5),
        (2, float, 2.0),
        ("yes", bool, True),
        ("0", bool, False),
        (True, bool, True),
        ("none", int | None, None),
        (None, int | None, None),
        ("7", int | None, 7),
        ("memory", Literal["memory", "replay"] | int, "memory"),
        ("50", Literal["memory", "replay"] | int, 50),
        ("auto", bool | Literal["auto"], "auto"),
        ("true", bool | Literal["auto"], True),
        ("1,0,1", tuple[float, float, float], (1.0, 0.0, 1.0)),
        ("[1.0, 0, 1]", tuple[float, float, float], (1.0, 0.0, 1.0)),
        ([1, 0, 1], tuple[float, float, float], (1.0, 0.0, 1.0)),
        ("stem, stage1", tuple[str, ...] | None, ("stem", "stage1")),
        ({"a": 1}, dict[str, Any], {"a": 1}),
        ("12", str, "12"),
    ],
)
def test_values_become_what_the_field_declares(value, hint, expected):
    found = convert("field", value, hint)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("3.5", int),
        (True, int),
        (3.0, int),
        ("many", float),
        (True, float),
        (1, bool),
        ("perhaps", bool),
        ("other", Literal["memory", "replay"]),
        ("1,2", tuple[float, float, float]),
        (5, tuple[float, ...]),
        (5, str),
        ([], dict[str, Any]),
        ("9" * 5000, int),
    ],
)
def test_anything_else_names_the_field_the_value_and_what_is_allowed(value, hint):
    with pytest.raises(ConfigError, match=r"tau is .*; allowed is "):
        convert("tau", value, hint)


def test_a_type_in_words():
    assert describe(int | None) == "an integer or none"
    assert describe(Literal["train", "eval"]) == "'train' or 'eval'"
