"""What counts as a number of things."""

from numbers import Integral


def is_count(value: object) -> bool:
    """Whether it is a whole number of at least 1, NumPy's included."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
