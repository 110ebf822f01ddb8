"""Values from outside — text of the command line, TOML, JSON — as the type that a field declares."""

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union

from corestream.errors import ConfigError

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def convert(name: str, value: Any, hint: Any) -> Any:
    """`value` as `hint`, or a ConfigError that names the field, the value and what is allowed."""
    try:
        return _convert(value, hint)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{name} is {value!r}; allowed is {describe(hint)}") from error


def describe(hint: Any) -> str:
    """A type in words: 'an integer or none'."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(part) for part in arguments)
    if origin is Literal:
        return " or ".join(repr(part) for part in arguments)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return f"{len(arguments)} {describe(arguments[0]).split(' ', 1)[-1]}s with commas between"
    if origin is tuple:
        return f"a list of {'values' if not arguments else describe(arguments[0]).split(' ', 1)[-1] + 's'}"
    words = {
        int: "an integer",
        float: "a number",
        bool: "true or false",
        str: "a text",
        types.NoneType: "none",
    }
    return words.get(hint, "a table of names and values")


def _convert(value: Any, hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, arguments)
    if origin is Literal:
        return _literal(value, arguments)
    if origin is tuple:
        return _tuple(value, arguments)
    if origin is not None or hint in (dict, Mapping):
        return _table(value)
    return _PLAIN[hint](value)


def _first_that_fits(value: Any, hints: tuple[Any, ...]) -> Any:
    # none first, for a list of names would take it for one; text last: it would swallow every number the command line gives
    for hint in sorted(hints, key=lambda part: 0 if part is types.NoneType else 2 if part is str else 1):
        try:
            return _convert(value, hint)
        except (ValueError, OverflowError):
            continue
    raise ValueError(value)


def _literal(value: Any, allowed: tuple[Any, ...]) -> Any:
    for choice in allowed:
        if (value == choice and type(value) is type(choice)) or (
            isinstance(value, str) and value == str(choice)
        ):
            return choice
    raise ValueError(value)


def _tuple(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[]()").split(",")]
    if not isinstance(value, list | tuple):
        raise ValueError(value)
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(_convert(part, hints[0]) for part in value)
    if len(value) != len(hints):
        raise ValueError(value)
    return tuple(_convert(part, hint) for part, hint in zip(value, hints, strict=True))


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(value)
    return dict(value)


def _integer(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    return float(value)


def _truth(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in TRUE + FALSE:
        return value.lower() in TRUE
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _none(value: Any) -> None:
    if value is not None and value != "none":
        raise ValueError(value)


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    int: _integer,
    float: _number,
    bool: _truth,
    str: _text,
    types.NoneType: _none,
}
