"""What makes a run the run it is: every choice that can move its numbers, and a digest of them all."""

import dataclasses
import os
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corestream import learners, streams
from corestream.errors import ConfigError, RunError
from corestream.learners.settings import WIDTHS
from corestream.messages import check_name
from corestream.plugins import VARIABLE
from corestream.streams.benchmarks.registry import Benchmark
from corestream.streams.folder import PREFIX as FOLDER
from corestream.streams.stream import SCENARIOS
from corestream.studies.files import canonical, parse_json, sha256
from corestream.studies.fingerprint import code_of, fingerprint
from corestream.studies.values import convert

FORMAT = 3  # enters the digest: raised when the same configuration no longer gives the same run
RECORDS = ("picks", "scores")
SMALL_PICTURES = 16  # pixels a side; below, a folder's network is the MLP


@dataclass(frozen=True)
class RunConfig:
    """The full configuration of one run. `settings` holds every hyperparameter, none left to a default."""

    benchmark: str
    method: str
    seed: int = 0
    imbalanced: bool = False
    noise: float = 0.0
    label_noise: float = 0.0
    scenario: str | None = None
    tasks: int | None = None
    protocol: str = "paper"
    device: str = "cpu"
    deterministic: bool = False
    record: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # what only some benchmarks take
    settings: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""  # of a folder's pictures and of the user's own code, which a name does not tell

    def __post_init__(self) -> None:
        # 0 and 0.0 are one choice, and have one digest
        for name, kind in (
            ("noise", float),
            ("label_noise", float),
            ("imbalanced", bool),
            ("deterministic", bool),
        ):
            object.__setattr__(self, name, kind(getattr(self, name)))
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed is {self.seed}; allowed are 0, 1, 2, … below 2⁶³")
        for name in ("noise", "label_noise"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; allowed are shares from 0 to 1")
        if self.tasks is not None and self.tasks < 1:
            raise ConfigError(f"tasks is {self.tasks}; at least 1 is needed")
        if self.scenario is not None:
            check_name("scenario", self.scenario, SCENARIOS)
        check_name("protocol", self.protocol, learners.PROTOCOLS)
        check_name("device", self.device, ("cpu", "cuda"))
        for name in self.record:
            check_name("record", name, RECORDS)
        object.__setattr__(self, "record", tuple(sorted(set(self.record))))
        for name in ("options", "settings"):  # as JSON gives them back: tuples become lists
            object.__setattr__(self, name, _plain(name, getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if not self.fingerprint:  # so that it changes no digest where there is none
            del plain["fingerprint"]
        return {**plain, "record": list(self.record)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "RunConfig":
        """From `to_dict`'s output, for instance out of config.json; types and names are checked."""
        hints = {f.name: f.type for f in dataclasses.fields(RunConfig)}
        for name in values:
            check_name("field of a run's configuration", name, hints)
        for name in ("benchmark", "method"):
            if name not in values:
                raise ConfigError(f"a run's configuration needs {name!r}")
        return RunConfig(**{name: convert(name, value, hints[name]) for name, value in values.items()})

    def digest(self) -> str:
        """Names the run's folder: equal exactly for equal configurations, seed included."""
        return _digest(FORMAT, self.to_dict())


def make_config(
    benchmark: str,
    method: str,
    *,
    overrides: Mapping[str, Any] | None = None,
    protocol: str | None = None,
    **choices: Any,
) -> RunConfig:
    """A method on a benchmark: its own settings there, replaced by `overrides`, all of them validated.

    `choices` are RunConfig's other fields: seed, noise, device and so on.
    """
    benchmark, method = canonical_benchmark(benchmark), check_method(method)
    protocol = protocol or learners.default_protocol(method, benchmark)
    if not has_settings(method, benchmark, protocol):
        others = " or ".join(name for name in learners.PROTOCOLS if has_settings(method, benchmark, name))
        raise ConfigError(f"{method} has no {protocol} settings on {benchmark}; give {others}")
    config = RunConfig(benchmark, method, protocol=protocol, **choices)
    known = description(config.benchmark)
    # a default said aloud is no other run
    options = known.checked_options(config.options)
    known.refuse_idle(options, imbalanced=config.imbalanced, noise=config.noise)
    scenario = known.checked_scenario(config.scenario, options)
    config = dataclasses.replace(
        config, scenario=scenario, options=options, fingerprint=fingerprint_of(benchmark, method)
    )
    settings = _fitting(default_settings(config), config, dict(overrides or {}))
    return dataclasses.replace(config, settings=dataclasses.asdict(settings))


def has_settings(method: str, benchmark: str, protocol: str) -> bool:
    """Whether a protocol means anything there: the best settings were not searched for everywhere."""
    return protocol != "best" or learners.default_protocol(method, benchmark) == "best"


def description(benchmark: str) -> Benchmark:
    """What may be asked of a benchmark, or of a folder of pictures."""
    return streams.FOLDER if benchmark.startswith(FOLDER) else streams.BENCHMARKS[benchmark]


def fingerprint_of(benchmark: str, method: str) -> str:
    """Of the pictures that are in a folder now, and of the code of a method or benchmark of the user's own; empty for the others."""
    is_folder = benchmark.startswith(FOLDER)
    data = pictures_of(benchmark) if is_folder else code_of(streams.BENCHMARKS[benchmark].build)
    return "+".join(filter(None, [data, code_of(learners.METHODS[method].learner)]))


def pictures_of(benchmark: str) -> str:
    """The fingerprint of the pictures that are in the folder now."""
    return fingerprint(Path(benchmark.removeprefix(FOLDER)))


def _fitting(settings: Any, config: RunConfig, overrides: dict[str, Any]) -> Any:
    """The settings with their overrides, and what those bring with them where it is not said: a network its usual width, a large
    memory as many candidates, from which it takes a task's share."""
    if config.benchmark.startswith(FOLDER) and config.options["image_size"] < SMALL_PICTURES:
        overrides.setdefault("network", "mlp")
    chosen = override(settings, overrides, f"method {config.method!r}")
    brought = {}
    if chosen.network != settings.network:
        brought["width"] = WIDTHS[chosen.network]
    if hasattr(chosen, "candidates") and hasattr(chosen, "capacity"):
        brought["candidates"] = max(chosen.candidates, chosen.capacity)
    said = {name.replace("-", "_") for name in overrides}
    return dataclasses.replace(chosen, **{name: value for name, value in brought.items() if name not in said})


def default_settings(config: RunConfig) -> Any:
    """The method's own hyperparameters on the benchmark, as its dataclass."""
    return learners.settings(
        config.method,
        config.benchmark,
        imbalanced=config.imbalanced,
        noisy=bool(config.noise or config.label_noise),
        scenario=config.scenario,
        protocol=config.protocol,
    )


def run_settings(config: RunConfig) -> Any:
    """The hyperparameters that the run has, as its method's dataclass."""
    return override(default_settings(config), config.settings, f"method {config.method!r}")


def check_method(name: str) -> str:
    return check_name(
        "method", name, learners.names(), hint=f"; or one of your own, whose file {VARIABLE} names"
    )


def canonical_benchmark(name: str) -> str:
    """A benchmark's name, or `folder:` and an absolute path, so that one folder is one configuration."""
    if name.startswith(FOLDER):
        if name == FOLDER:
            raise ConfigError(f"{name!r} names no folder; expected folder:PATH")
        folder = Path(os.path.abspath(os.path.expanduser(name.removeprefix(FOLDER))))
        if not folder.is_dir():
            raise ConfigError(f"{name!r}: there is no folder {folder}")
        return FOLDER + str(folder)
    hint = (
        f"; or folder:PATH for pictures of your own, or a benchmark of your own, whose file {VARIABLE} names"
    )
    return check_name("benchmark", name, streams.names(), hint=hint)


def override(settings: Any, values: Mapping[str, Any], owner: str) -> Any:
    """A method's settings with some of them replaced; text is read as the field's type."""
    hints = setting_types(settings)
    changes = {}
    for name, value in values.items():
        field_name = name.replace("-", "_")
        check_name(f"setting of {owner}", field_name, hints)
        changes[field_name] = convert(field_name, value, hints[field_name])
    return dataclasses.replace(settings, **changes)


def setting_types(settings: Any) -> dict[str, Any]:
    """Each hyperparameter's name and type."""
    kind = settings if isinstance(settings, type) else type(settings)
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.init}


def read_config(path: Path) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration and the environment in a run's config.json."""
    with _telling_damage(path):
        record = _read_record(path)
        return RunConfig.from_dict(record["config"]), record["environment"]


def written_digest(path: Path) -> str:
    """The digest that the configuration in a run's config.json had when it was written, by the format of that time."""
    with _telling_damage(path):
        record = _read_record(path)
        return _digest(record["format"], record["config"])


def _read_record(path: Path) -> dict[str, Any]:
    record = parse_json(path.read_bytes())
    if not isinstance(record["config"], dict) or not isinstance(record["environment"], dict):
        raise ValueError("config and environment are not objects")
    return record


@contextmanager
def _telling_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{path} is damaged ({error}); remove {path.parent} to make this run again") from error


def _digest(number: int, config: Mapping[str, Any]) -> str:
    return sha256(canonical({"format": number, **config}))[:16]


def _plain(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return parse_json(canonical(dict(values)))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must hold finite numbers, texts and lists: {error}") from error
