"""TensorBoard, MLflow and W&B behind one small protocol; each is an extra, imported only when asked for."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from corestream.errors import ConfigError
from corestream.studies.config import RunConfig
from corestream.studies.names import check_name


class Logger(Protocol):
    """What a run tells a logger: numbers at a step, and the end."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder, under tensorboard/."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        tensorboard = _require("torch.utils.tensorboard", "tensorboard")
        self._writer: Any = tensorboard.SummaryWriter(log_dir=str(folder / "tensorboard"))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class MLflow:
    """One MLflow run, named by the digest, where MLFLOW_TRACKING_URI says."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._mlflow: Any = _require("mlflow", "mlflow")
        self._mlflow.set_experiment(f"corestream {config.benchmark}")
        self._mlflow.start_run(run_name=f"{config.method} {config.digest()}")
        self._mlflow.log_params(flat(config.to_dict()))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class WandB:
    """One W&B run; its id is the digest, so that a resumed run goes on in the same place."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        wandb: Any = _require("wandb", "wandb")
        self._run = wandb.init(
            project="corestream",
            name=f"{config.benchmark} {config.method} {config.seed}",
            id=config.digest(),
            resume="allow",
            dir=str(folder),
            config=config.to_dict(),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


LOGGERS: dict[str, Callable[[RunConfig, Path], Logger]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def check_loggers(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names themselves, once each is known."""
    return tuple(check_name("logger", name, LOGGERS) for name in names)


def make_loggers(names: tuple[str, ...], config: RunConfig, folder: Path) -> list[Logger]:
    return [LOGGERS[name](config, folder) for name in check_loggers(names)]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted names, as MLflow wants its parameters."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def _require(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"logging to {extra} needs one more package: pip install 'corestream[{extra}]'"
        ) from error
