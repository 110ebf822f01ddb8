"""What counts as a number of things, and as a number."""

import math
from numbers import Integral, Real
from typing import Any


def is_count(value: object) -> bool:
    """Whether it is a whole number of at least 1, NumPy's included."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_counts(**values: object) -> None:
    """Arguments by their names: the first that is no count is refused."""
    for name, value in values.items():
        if not is_count(value):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def is_finite(value: object) -> bool:
    """Whether it is a number, and neither NaN nor infinite."""
    return isinstance(value, Real) and math.isfinite(value)


def check_not_negative(**values: Any) -> None:
    """Likewise: the first that is not a finite number from 0 on is refused."""
    for name, value in values.items():
        if not is_finite(value) or value < 0:
            raise ValueError(f"{name} must be a finite number that is not negative, got {value!r}")


def check_positive(**values: Any) -> None:
    for name, value in values.items():
        if not is_finite(value) or value <= 0:
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
