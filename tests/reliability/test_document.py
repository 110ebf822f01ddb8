"""Every promise in docs/RELIABILITY.md points at tests that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "RELIABILITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_named_test_is_there(file, name):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_a_test():
    promises = [line for line in TEXT.splitlines() if line.startswith("| ") and "---" not in line]
    promises = [line for line in promises if not line.startswith("| Promise")]
    assert len(promises) > 25
    assert [line for line in promises if not re.search(r"`(tests/[\w/]+\.py)(::\w+)?`", line)] == []
