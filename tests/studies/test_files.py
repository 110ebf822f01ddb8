import os

import pytest

from corestream.errors import RunError
from corestream.studies import files


def test_a_failed_write_leaves_the_old_content_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "accuracy.json"
    files.write_atomically(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_is_not_valid_in_the_locale_is_written_with_a_question_mark(tmp_path):
    files.write_text(tmp_path / "page.html", "Runs in été\udcff")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "Runs in été?"


def test_equal_values_have_equal_bytes():
    assert files.canonical({"b": 1, "a": [1.5, None]}) == files.canonical({"a": [1.5, None], "b": 1})


def test_a_value_that_is_not_finite_has_no_canonical_form():
    with pytest.raises(ValueError):
        files.canonical({"a": float("nan")})


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 200_000, b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_damaged_json_is_one_clean_error_that_names_the_file(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"config\.json"):
        files.read_json(path)


def test_nested_tables_become_dotted_names():
    assert files.flat({"a": 1, "b": {"c": 2, "d": {"e": 3}}}) == {"a": 1, "b.c": 2, "b.d.e": 3}
