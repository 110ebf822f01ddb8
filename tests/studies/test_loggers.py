import sys
from types import SimpleNamespace

import pytest

from corestream.errors import ConfigError
from corestream.studies import loggers
from corestream.studies.config import RunConfig
from corestream.studies.loggers import LOGGERS, make_loggers

CONFIG = RunConfig("rotated-digits", "ocs", settings={"tau": 10.0})


class Recorder:
    """Stands in for a package: every call is noted."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments, **keywords):
            self.calls.append((name, arguments, keywords))
            return self

        return call


def test_tensorboard_gets_every_number_at_its_step(tmp_path, monkeypatch):
    writer = Recorder()
    package = SimpleNamespace(SummaryWriter=lambda log_dir: writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", package)
    (logger,) = make_loggers(("tensorboard",), CONFIG, tmp_path)
    logger.log(7, {"average_accuracy": 0.5})
    logger.close()
    assert writer.calls == [("add_scalar", ("average_accuracy", 0.5, 7), {}), ("close", (), {})]


class Tracking(Recorder):
    """Stands in for MLflow, with the runs that it has under their tags."""

    experiment_id, info = "an experiment", SimpleNamespace(run_id="a run")

    def __init__(self, known=()):
        super().__init__()
        self.known = known

    def search_runs(self, experiments, filter_string, max_results):
        digest = filter_string.removeprefix("tags.digest = ").strip("'")
        return [self] if digest in self.known else []


def test_mlflow_gets_the_configuration_and_the_numbers(tmp_path, monkeypatch):
    package = Tracking()
    monkeypatch.setitem(sys.modules, "mlflow", package)
    (logger,) = make_loggers(("mlflow",), CONFIG, tmp_path)
    logger.log(7, {"forgetting": 0.1})
    logger.close()
    names = [name for name, *_ in package.calls]
    assert names[:3] == ["set_experiment", "MlflowClient", "create_run"]
    assert package.calls[2][2]["tags"] == {"digest": CONFIG.digest()}
    assert names[-2:] == ["log_metric", "set_terminated"]
    params = {arguments[1]: arguments[2] for name, arguments, _ in package.calls if name == "log_param"}
    assert params["settings.tau"] == 10.0
    assert package.calls[-2] == ("log_metric", ("a run", "forgetting", 0.1), {"step": 7})


def test_mlflow_goes_on_in_the_same_run(tmp_path, monkeypatch):
    package = Tracking(known=[CONFIG.digest()])
    monkeypatch.setitem(sys.modules, "mlflow", package)
    (logger,) = make_loggers(("mlflow",), CONFIG, tmp_path)
    logger.log(8, {"forgetting": 0.2})
    logger.close()
    names = [name for name, *_ in package.calls]
    assert names == ["set_experiment", "MlflowClient", "update_run", "log_metric", "set_terminated"]
    assert package.calls[2] == ("update_run", ("a run",), {"status": "RUNNING"})


def test_wandb_goes_on_in_the_same_run(tmp_path, monkeypatch):
    package = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", package)
    (logger,) = make_loggers(("wandb",), CONFIG, tmp_path)
    logger.log(7, {"forgetting": 0.1})
    logger.close()
    assert [name for name, *_ in package.calls] == ["init", "log", "finish"]
    assert package.calls[0][2]["id"] == CONFIG.digest()
    assert package.calls[0][2]["reinit"] == "create_new"  # others of this process go on


def test_a_logger_is_closed_where_the_next_one_cannot_be_made(tmp_path, monkeypatch):
    def broken(config, folder):
        raise ConnectionError("nobody there")

    first = Recorder()
    monkeypatch.setitem(LOGGERS, "first", lambda config, folder: first)
    monkeypatch.setitem(LOGGERS, "second", broken)
    with pytest.raises(ConnectionError):
        make_loggers(("first", "second"), CONFIG, tmp_path)
    assert [name for name, *_ in first.calls] == ["close"]


def test_a_logger_named_twice_is_one(monkeypatch):
    monkeypatch.setattr(loggers, "_require", lambda name: None)
    assert loggers.check_loggers(("wandb", "mlflow", "wandb")) == ("wandb", "mlflow")


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=r"pip install 'corestream\[mlflow\]'"):
        make_loggers(("mlflow",), CONFIG, tmp_path)


def test_a_wrong_logger_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'tensorboard'"):
        make_loggers(("tensorbord",), CONFIG, tmp_path)
