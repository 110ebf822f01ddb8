"""The command that makes a run."""

import shlex
from collections.abc import Mapping
from typing import Any

from corestream import learners
from corestream.errors import ConfigError
from corestream.studies.config import RunConfig, description, make_config

SWITCHES = ("imbalanced", "deterministic")
VALUES = ("noise", "label_noise", "tasks", "device")
PLAIN = RunConfig("", "")


def command_of(config: RunConfig) -> str:
    """`corestream run …` with every choice that is not the default."""
    which = ["--method", config.method, "--seed", str(config.seed)]
    return shlex.join(["corestream", "run", config.benchmark, *which, *_choices(config)])


def row_command(config: RunConfig, seeds: int) -> str:
    """`corestream compare …`, which makes all seeds of a table's row."""
    which = ["--methods", config.method, "--seeds", str(seeds)]
    return shlex.join(["corestream", "compare", config.benchmark, *which, *_choices(config)])


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
    own = _beside(_usual_settings(config) or {}, config)  # all of them where nobody here knows the usual ones
    for name, value in (*options.items(), *own.items()):
        words += _option(name, value)
    return words


def own_words(config: RunConfig) -> list[str]:
    """The settings that are not the method's own, in words: `tau 10`; none where nobody here knows which are its own."""
    usual = _usual_settings(config)
    if usual is None:
        return []
    return [f"{name.replace('_', ' ')} {_text(value)}" for name, value in _beside(usual, config).items()]


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


def _beside(usual: Mapping[str, Any], config: RunConfig) -> Mapping[str, Any]:
    """The settings that differ from the usual ones."""
    return {
        name: value for name, value in config.settings.items() if name not in usual or usual[name] != value
    }


def _usual_settings(config: RunConfig) -> Mapping[str, Any] | None:
    """The method's own on that stream."""
    which = ("imbalanced", "noise", "label_noise", "scenario", "protocol")  # what they depend on
    choices = {name: getattr(config, name) for name in which}
    try:
        return make_config(config.benchmark, config.method, options=config.options, **choices).settings
    except ConfigError:  # a folder that is gone, or a method of another version
        return None


def _option(name: str, value: Any) -> list[str]:
    return [f"--{name.replace('_', '-')}", _text(value)]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(_text(part) for part in value)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
