"""The command that makes a run."""

import os
import shlex
from collections.abc import Mapping
from typing import Any

from corestream import learners
from corestream.errors import ConfigError
from corestream.learners.methods import BUILT_IN as METHODS
from corestream.plugins import VARIABLE
from corestream.streams.benchmarks import BUILT_IN as BENCHMARKS
from corestream.streams.folder import PREFIX as FOLDER
from corestream.studies.config import RunConfig, description, make_config

SWITCHES = ("imbalanced", "deterministic")
VALUES = ("noise", "label_noise", "tasks", "device")
PLAIN = RunConfig("", "")


def command_of(config: RunConfig, threads: int | None = None) -> str:
    """`corestream run …` with every choice that is not the default, and as many threads as the run had on a processor, where known."""
    which = ["--method", config.method, "--seed", str(config.seed)]
    how = _option("threads", threads) if threads is not None and config.device == "cpu" else []
    return _import_of(config) + shlex.join(
        ["corestream", "run", config.benchmark, *which, *_choices(config), *how]
    )


def row_command(config: RunConfig, seeds: int) -> str:
    """`corestream compare …`, which makes all seeds of a table's row."""
    which = ["--methods", config.method, "--seeds", str(seeds)]
    return _import_of(config) + shlex.join(
        ["corestream", "compare", config.benchmark, *which, *_choices(config)]
    )


def _import_of(config: RunConfig) -> str:
    """What names the file of a method or benchmark of the user's own; nothing for corestream's."""
    if config.method in METHODS and (config.benchmark in BENCHMARKS or config.benchmark.startswith(FOLDER)):
        return ""
    return f"{VARIABLE}={shlex.quote(os.environ.get(VARIABLE) or 'YOUR_FILE.py')} "


def _choices(config: RunConfig) -> list[str]:
    words = [f"--{name}" for name in SWITCHES if getattr(config, name)]
    for name in VALUES:
        if (value := getattr(config, name)) != getattr(PLAIN, name) or name == "device":
            words += _option(name, value)
    if config.protocol != learners.default_protocol(config.method, config.benchmark):
        words += _option("protocol", config.protocol)
    scenario, options = unusual_choices(config.to_dict())
    words += _option("scenario", scenario) if scenario else []
    words += _option("record", config.record) if config.record else []
    given = given_settings(config)
    own = config.settings if given is None else given
    for name, value in (*options.items(), *own.items()):
        words += _option(name, value)
    return words


def own_words(config: RunConfig) -> list[str]:
    """The settings that are not the method's own, in words: `tau 10`; none where nobody here knows which are its own."""
    given = given_settings(config) or {}
    return [in_words(name, value) for name, value in given.items()]


def in_words(name: str, value: Any) -> str:
    """A field of a configuration: `tau 10`, `warm start none`."""
    return f"{name.replace('_', ' ')} {_text(value)}"


def unusual_choices(config: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The scenario and the options of a stream where they are not its benchmark's own."""
    scenario, options = config.get("scenario"), dict(config.get("options", {}))
    try:
        known = description(config["benchmark"])
        usual_scenario, usual = known.checked_scenario(None, options), known.checked_options({})
    except (KeyError, ConfigError):  # a benchmark of another version
        return scenario, options
    unusual = {name: value for name, value in options.items() if name not in usual or usual[name] != value}
    return None if scenario == usual_scenario else scenario, unusual


def given_settings(config: RunConfig) -> dict[str, Any] | None:
    """The settings that differ from the usual ones, also from those that another one brings with it: a network its width, say.

    None where nobody here knows the usual ones.
    """
    plain = usual = _usual_settings(config, {})
    if plain is None:
        return None
    given: set[str] = set()
    while usual and (more := _different(config.settings, usual) - given):
        given |= more
        usual = _usual_settings(config, {name: config.settings[name] for name in given if name in plain})
    return {name: value for name, value in config.settings.items() if name in given}


def _different(settings: Mapping[str, Any], usual: Mapping[str, Any]) -> set[str]:
    return {name for name, value in settings.items() if name not in usual or usual[name] != value}


def _usual_settings(config: RunConfig, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The method's on that stream where only these are given."""
    which = ("imbalanced", "noise", "label_noise", "scenario", "protocol", "options")  # what they depend on
    choices = {name: getattr(config, name) for name in which}
    try:
        return make_config(config.benchmark, config.method, overrides=given, **choices).settings
    except ConfigError:  # a folder that is gone, or a method or a value of another version
        return None


def _option(name: str, value: Any) -> list[str]:
    return [f"--{name.replace('_', '-')}", _text(value)]


def _text(value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(_text(part) for part in value)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
