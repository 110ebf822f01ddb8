"""TensorBoard, MLflow and W&B behind one small protocol; each is an extra, imported only when asked for."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from corestream.errors import ConfigError
from corestream.messages import check_name
from corestream.studies.config import RunConfig
from corestream.studies.files import flat


class Logger(Protocol):
    """What a run tells a logger: numbers at a step, and the end."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder, under tensorboard/."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        tensorboard = _require("tensorboard")
        self._writer: Any = tensorboard.SummaryWriter(log_dir=str(folder / "tensorboard"))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class MLflow:
    """One MLflow run where MLFLOW_TRACKING_URI says, beside others of the same process; found again by the digest, so that a resumed run
    goes on in the same place."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        mlflow: Any = _require("mlflow")
        experiment = mlflow.set_experiment(f"corestream {config.benchmark}")
        self._client = mlflow.MlflowClient()
        place, digest = experiment.experiment_id, config.digest()
        found = self._client.search_runs([place], filter_string=f"tags.digest = '{digest}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return
        name = f"{config.method} {digest}"
        self._run = self._client.create_run(place, run_name=name, tags={"digest": digest}).info.run_id
        for key, value in flat(config.to_dict()).items():
            self._client.log_param(self._run, key, value)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._run)


class WandB:
    """One W&B run, beside others of the same process; its id is the digest, so that a resumed run goes on in the same place."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        wandb: Any = _require("wandb")
        self._run = wandb.init(
            project="corestream",
            name=f"{config.benchmark} {config.method} {config.seed}",
            id=config.digest(),
            resume="allow",
            reinit="create_new",
            dir=str(folder),
            config=config.to_dict(),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


PACKAGES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
LOGGERS: dict[str, Callable[[RunConfig, Path], Logger]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def check_loggers(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names themselves, once each is known and its package is there."""
    for name in names:
        if check_name("logger", name, LOGGERS) in PACKAGES:
            _require(name)
    return tuple(dict.fromkeys(names))


def let_go(logger: Logger, note: Callable[[str], None]) -> None:
    """Close it. What it could not take to its end is noted, and holds up no run."""
    try:
        logger.close()
    except Exception as error:
        with suppress(OSError):
            note(f"{type(error).__name__}: {error}")


def make_loggers(names: tuple[str, ...], config: RunConfig, folder: Path) -> list[Logger]:
    """All of them, or none that is left open."""
    loggers: list[Logger] = []
    with ExitStack() as made:
        for name in check_loggers(names):
            loggers.append(LOGGERS[name](config, folder))
            made.callback(loggers[-1].close)
        made.pop_all()
    return loggers


def _require(name: str) -> Any:
    try:
        return importlib.import_module(PACKAGES[name])
    except ImportError as error:
        raise ConfigError(
            f"logging to {name} needs one more package: pip install 'corestream[{name}]'"
        ) from error
