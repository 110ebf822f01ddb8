"""What somebody asked of a benchmark, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from corestream.counts import is_count
from corestream.errors import ConfigError


@dataclass(frozen=True)
class Request:
    """The arguments every benchmark shares, and its own `options`."""

    name: str
    seed: int = 0
    imbalanced: bool = False
    noise: float = 0.0
    label_noise: float = 0.0
    scenario: str = "domain"
    tasks: int | None = None
    data_dir: Path | None = None
    offline: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral):
            raise ConfigError(f"seed={self.seed!r}: expected a whole number")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; allowed are 0, 1, 2, …")
        object.__setattr__(self, "seed", int(self.seed))  # NumPy's numbers cannot be written as JSON
        for name in ("noise", "label_noise"):
            share = getattr(self, name)
            if not is_number(share) or not 0 <= share <= 1:
                raise ConfigError(f"{name}={share!r}: expected a share from 0 to 1, such as 0.6")
            object.__setattr__(self, name, float(share))
        if self.tasks is not None and not is_count(self.tasks):
            raise ConfigError(
                f"tasks={self.tasks!r}: expected a whole number of at least 1, or none for all tasks"
            )

    def cut(self, available: int) -> int:
        """How many tasks the stream has after `tasks` cut it."""
        if self.tasks is not None and self.tasks > available:
            raise ConfigError(
                f"tasks={self.tasks}: {self.name} has {available} tasks; give at most {available}"
            )
        return available if self.tasks is None else self.tasks

    def settings(self) -> dict[str, Any]:
        """What a card and a run's configuration record."""
        shared = {"imbalanced": self.imbalanced, "noise": self.noise, "label_noise": self.label_noise}
        return {**shared, **self.options}


def is_number(value: object) -> bool:
    """Whether it is a real number, NumPy's included."""
    return isinstance(value, Real) and not isinstance(value, bool)
