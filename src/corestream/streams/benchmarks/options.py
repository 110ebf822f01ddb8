"""Options as they are written on a command line: `full_classes=random`."""

from collections.abc import Iterable

from corestream.errors import ConfigError


def parse_options(texts: Iterable[str]) -> dict[str, str | int | float]:
    """NAME=VALUE texts as a dictionary; hyphens in names are underscores, numbers become numbers."""
    options: dict[str, str | int | float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f"option {text!r}: expected NAME=VALUE, such as full_classes=random")
        options[name.replace("-", "_")] = _number(value)
    return options


def _number(value: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
