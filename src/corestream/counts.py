"""What counts as a number of things."""

from numbers import Integral


def is_count(value: object) -> bool:
    """Whether it is a whole number of at least 1, NumPy's included."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_counts(**values: object) -> None:
    """Arguments by their names: the first that is no count is refused."""
    for name, value in values.items():
        if not is_count(value):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
