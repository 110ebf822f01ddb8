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
    return _with_options(command, _hyperparameters() | _choices())


def with_choices(command: Callable[..., None]) -> Callable[..., None]:
    """The same with the benchmarks' choices alone."""
    return _with_options(command, _choices())


def table_of(name: str) -> str | None:
    """The table of a study's file that a hyperparameter or a choice belongs into; None for any other name."""
    if name in _hyperparameters():
        return "settings"
    return "options" if name in _choices() else None


def _with_options(command: Callable[..., None], options: Values) -> Callable[..., None]:
    plain = inspect.signature(command)
    own = [parameter for name, parameter in plain.parameters.items() if name != "extra"]
    taken = {parameter.name for parameter in own}
    added = {name: hint for name, hint in options.items() if name not in taken}

    @wraps(command)
    def wrapped(**values: Any) -> None:
        given = {name: values.pop(name) for name in added}
        command(**values, extra={name: value for name, value in given.items() if value is not None})

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in added.items()
    ]
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    wrapped.__signature__ = plain.replace(parameters=[*keyword_only, *parameters])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {**command.__annotations__, **added}
    return wrapped


def _hyperparameters() -> Values:
    """Each option's name with its type, as text: the method that it goes to knows what it must be."""
    found: Values = {}
    for method in learners.METHODS.values():
        for name, hint in setting_types(method.settings).items():
            found.setdefault(name, _option(name, describe(hint), METHOD))
    return found


def _choices() -> Values:
    """The same of the benchmarks, and of folders of pictures."""
    found: Values = {}
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
    others = {name: value for name, value in extra.items() if name not in hyper}
    for name in others:
        known = sorted({*settings, *description(benchmark).options})
        check_name("option for this method and benchmark", name, known)
    return hyper, choices_of(benchmark, others)


def choices_of(benchmark: str, given: Mapping[str, Any]) -> Values:
    """The benchmark's choices as their types; what it does not have stays text, for it to refuse."""
    known = description(benchmark).options
    return {name: convert(name, value, _kind(known.get(name))) for name, value in given.items()}


def _kind(option: Any) -> Any:
    if not isinstance(option, Number):
        return str
    kind = int if option.whole else float
    return kind | None if option.default is None else kind
