"""What a run found, as a file holds it: looked at once where it is read, so that tables and pages need not."""

import sys
from collections.abc import Callable, Mapping
from typing import Any


def check_accuracy(found: Mapping[str, Any], status: str) -> None:
    """A ValueError names what is not as a run writes it. A result of one's own may be without `trained` and `memory`."""
    mean = found.get("average_accuracy")
    right = {
        "matrix": _is_matrix(found.get("matrix"), found.get("tasks")),
        "average_accuracy": is_number(mean) or (mean is None and status != "done"),
        "forgetting": is_number_or_none(found.get("forgetting")),
        "trained": _are_all(found.get("trained") or [], _is_training),
        "memory": _are_all(found.get("memory") or [], _is_memory_or_none),
    }
    if wrong := [name for name, is_right in right.items() if not is_right]:
        raise ValueError(f"not as a run writes it: {', '.join(wrong)}")


def is_number(value: Any) -> bool:
    """A finite one: NaN compares with nothing, and JSON's integers may be larger than any float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


def _are_all(values: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(is_right, values))


def _is_matrix(matrix: Any, tasks: Any) -> bool:
    rows = _are_all(matrix, lambda row: _are_all(row, is_number_or_none) and len(row) == len(matrix))
    return rows and tasks in (None, len(matrix))


def _is_training(task: Any) -> bool:
    return isinstance(task, dict) and is_number(task.get("samples")) and is_number(task.get("noise"))


def _is_memory_or_none(memory: Any) -> bool:
    if memory is None:
        return True
    if not isinstance(memory, dict) or not is_number(memory.get("samples")):
        return False
    classes = memory.get("classes") or {}
    return (
        is_number_or_none(memory.get("noise"))
        and isinstance(classes, dict)
        and all(map(is_number, classes.values()))
    )
