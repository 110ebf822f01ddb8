"""One option for every hyperparameter of any method and every choice of any benchmark."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer

from corestream import learners, streams
from corestream.messages import check_name
from corestream.streams.benchmarks.registry import Number
from corestream.studies.config import description, setting_types
from corestream.studies.values import convert, describe

METHOD, BENCHMARK = "The method's hyperparameters", "The benchmark's choices"
Values = dict[str, Any]


def with_hyperparameters(command: Callable[..., None]) -> Callable[..., None]:
    """The command with those options; what was given of them arrives as its argument `extra`."""
    plain = inspect.signature(command)
    own = [parameter for name, parameter in plain.parameters.items() if name != "extra"]
    taken = {parameter.name for parameter in own}
    added = {name: hint for name, hint in _options().items() if name not in taken}

    @wraps(command)
    def wrapped(**values: Any) -> None:
        given = {name: values.pop(name) for name in added}
        command(**values, extra={name: value for name, value in given.items() if value is not None})

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in added.items()
    ]
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    wrapped.__signature__ = plain.replace(parameters=[*keyword_only, *options])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {**command.__annotations__, **added}
    return wrapped


def _options() -> dict[str, Any]:
    """Each option's name with its type, as text: the method or benchmark that it goes to knows what it must be."""
    found: dict[str, Any] = {}
    for method in learners.METHODS.values():
        for name, hint in setting_types(method.settings).items():
            found.setdefault(name, _option(name, describe(hint), METHOD))
    for benchmark in (*streams.BENCHMARKS.values(), streams.FOLDER):
        for name, kind in benchmark.options.items():
            words = "a number" if isinstance(kind, Number) else " or ".join(kind.values)
            found.setdefault(name, _option(name, words, BENCHMARK))
    return found


def _option(name: str, words: str, panel: str) -> Any:
    flag = f"--{name.replace('_', '-')}"
    return Annotated[str | None, typer.Option(flag, help=words, metavar="", rich_help_panel=panel)]


def split(benchmark: str, settings: Iterable[str], extra: Mapping[str, Any]) -> tuple[Values, Values]:
    """Hyperparameters and the benchmark's choices, these as their types; what neither has is refused by name."""
    hyper = {name: extra[name] for name in extra if name in set(settings)}
    kinds = description(benchmark).options
    choices = {}
    for name in extra:
        if name not in hyper:
            check_name("option for this method and benchmark", name, sorted({*settings, *kinds}))
            choices[name] = convert(name, extra[name], _kind(kinds[name]))
    return hyper, choices


def _kind(option: Any) -> Any:
    if not isinstance(option, Number):
        return str
    return int if option.whole else float
