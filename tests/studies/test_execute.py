import json
import re
import signal

import numpy
import pytest
import torch

from corestream import streams
from corestream.errors import ConfigError, DataError, RunError
from corestream.studies import environment, execute
from corestream.studies.config import FORMAT, make_config
from corestream.studies.drive import Options
from corestream.studies.events import EventLog, read_events
from corestream.studies.locks import LockedError, locked
from corestream.studies.lockstep import make_runs_together
from corestream.studies.stopping import Interrupted, StopRequest

ONE_THREAD = Options(threads=1)


@pytest.fixture
def config():
    return make_config("rotated-digits", "uniform", tasks=2, overrides={"sweeps": 1})


def names(folder):
    return [event["event"] for event in read_events(folder)]


def test_a_run_tells_its_story_in_events(config, tmp_path):
    found = execute.execute(config, tmp_path, ONE_THREAD)
    folder = tmp_path / config.digest()
    assert names(folder) == ["started", "task", "checkpoint", "task", "checkpoint", "done"]
    task = read_events(folder)[1]
    assert task["accuracies"] == found["matrix"][0][:1]
    assert task["seconds"] > 0
    assert task["peak_bytes"] > 0
    assert execute.read_accuracy(folder, config) == found


def test_progress_rises_and_tells_accuracy_and_time_left(config, tmp_path):
    told = []
    execute.execute(config, tmp_path, ONE_THREAD, report=told.append)
    closed = [progress for progress in told if progress.task_closed]
    assert [progress.task for progress in closed] == [1, 2]
    assert closed[0].seconds_left > 0
    assert closed[0].accuracy is not None
    assert closed[-1].share == 1


def test_a_request_to_stop_saves_and_the_next_call_goes_on(config, tmp_path):
    whole = execute.execute(config, tmp_path / "whole", ONE_THREAD)
    stop = StopRequest()
    stop.request(signal.SIGTERM)
    with pytest.raises(Interrupted, match="step 1; the same command continues") as interrupted:
        execute.execute(config, tmp_path / "torn", ONE_THREAD, stop=stop)
    assert interrupted.value.exit_status == 143
    folder = tmp_path / "torn" / config.digest()
    assert names(folder) == ["started", "checkpoint", "interrupted"]
    assert execute.execute(config, tmp_path / "torn", ONE_THREAD) == whole
    assert "resumed" in names(folder)


def test_going_on_from_an_older_checkpoint_is_told(config, tmp_path):
    def stop_after_the_second_task(progress):
        if progress.task == 2:
            stop.request(signal.SIGTERM)

    whole = execute.execute(config, tmp_path / "whole", ONE_THREAD)
    stop = StopRequest()
    with pytest.raises(Interrupted):
        execute.execute(config, tmp_path, ONE_THREAD, report=stop_after_the_second_task, stop=stop)
    folder = tmp_path / config.digest()
    newest = max((folder / "checkpoint").glob("*.safetensors"))
    newest.write_bytes(b"")
    with pytest.warns(UserWarning, match=rf"goes on from an older checkpoint, at step \d+: {newest.stem} "):
        assert execute.execute(config, tmp_path, ONE_THREAD) == whole


def test_what_is_raised_is_recorded_with_its_traceback(config, tmp_path, monkeypatch):
    def fail(*arguments, **keywords):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(execute, "make_run", fail)
    with pytest.raises(ZeroDivisionError):
        execute.execute(config, tmp_path, ONE_THREAD)
    last = read_events(tmp_path / config.digest())[-1]
    line = fail.__code__.co_firstlineno + 1
    words = f"ZeroDivisionError: on purpose (test_execute.py:{line})"
    assert (last["event"], last["error"]) == ("failed", words)
    assert "in fail" in last["traceback"]


def test_an_error_inside_a_library_is_placed_where_it_was_called():
    with pytest.raises(ValueError, match="batch_size") as told:
        torch.nn.functional.cross_entropy(torch.zeros(2, 3), torch.zeros(5, dtype=torch.long))
    assert re.search(r"\(test_execute\.py:\d+\)$", execute.described(told.value))


def test_an_error_of_corestream_says_what_is_wrong_and_no_place():
    with pytest.raises(ConfigError) as told:
        make_config("rotated-digits", "osc")
    assert execute.described(told.value) == f"ConfigError: {told.value}"


def test_a_result_of_another_configuration_is_refused(config, tmp_path):
    execute.execute(config, tmp_path, ONE_THREAD)
    other = make_config("rotated-digits", "uniform", seed=5, tasks=2, overrides={"sweeps": 1})
    (tmp_path / config.digest()).rename(tmp_path / other.digest())
    with pytest.raises(RunError, match="belongs to another configuration"):
        execute.execute(other, tmp_path, ONE_THREAD)


def test_an_unfinished_run_of_another_configuration_is_refused(config, tmp_path):
    folder = tmp_path / config.digest()
    execute.execute(config, tmp_path, ONE_THREAD)
    (folder / "accuracy.json").unlink()
    record = json.loads((folder / "config.json").read_text())
    record["config"]["seed"] = 9
    (folder / "config.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match="another configuration than its folder is named after"):
        execute.execute(config, tmp_path, ONE_THREAD)


@pytest.mark.parametrize("content", ["", "[]", '{"status": "done"}', '{"status": "odd", "matrix": []}'])
def test_a_damaged_result_is_a_clear_error_and_never_taken(config, tmp_path, content):
    folder = tmp_path / config.digest()
    folder.mkdir()
    (folder / "accuracy.json").write_text(content)
    with pytest.raises(RunError, match=r"accuracy\.json .*remove"):
        execute.execute(config, tmp_path, ONE_THREAD)


def test_lost_checkpoints_are_told_and_not_started_over(config, tmp_path):
    folder = tmp_path / config.digest()
    folder.mkdir()
    EventLog(folder).write("checkpoint", step=10)
    with pytest.raises(RunError, match="they are gone"):
        execute.execute(config, tmp_path, ONE_THREAD)


def test_a_run_does_not_go_on_with_other_data_files(config, tmp_path, monkeypatch):
    def stop_after_a_task(progress):
        if progress.task_closed:
            request.signum = signal.SIGTERM

    with StopRequest() as request, pytest.raises(Interrupted):
        execute.execute(config, tmp_path, ONE_THREAD, report=stop_after_a_task, stop=request)
    real = streams.benchmark
    with monkeypatch.context() as other:
        other.setattr(
            streams, "benchmark", lambda name, *, seed, **choices: real(name, seed=seed + 1, **choices)
        )
        with pytest.raises(DataError, match="begun with other data files than rotated-digits has now"):
            execute.execute(config, tmp_path, ONE_THREAD)
    assert execute.execute(config, tmp_path, ONE_THREAD)["status"] == "done"


def test_a_resumed_run_takes_as_many_threads_as_it_began_with(config, tmp_path):
    before = torch.get_num_threads()
    try:
        stop = StopRequest()
        stop.request()
        with pytest.raises(Interrupted):
            execute.execute(config, tmp_path, Options(threads=1), stop=stop)
        torch.set_num_threads(2)
        execute.execute(config, tmp_path, Options(threads=2))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_the_memory_can_be_read_back(tmp_path):
    config = make_config("rotated-digits", "ocs", tasks=1, overrides={"sweeps": 1})
    execute.execute(config, tmp_path, ONE_THREAD)
    kept = execute.read_memory(tmp_path / config.digest())
    assert kept["inputs"].shape[1:] == (1, 16, 16)
    assert len(kept["inputs"]) == len(kept["targets"]) == len(kept["tasks"]) == len(kept["ids"])
    assert execute.read_memory(tmp_path) == {}


def test_deterministic_kernels_are_asked_for_and_let_go(tmp_path):
    config = make_config("rotated-digits", "ocs", tasks=1, deterministic=True, overrides={"sweeps": 1})
    try:
        execute.execute(config, tmp_path, ONE_THREAD)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        environment.prepare_device("cpu", deterministic=False)
    assert not torch.are_deterministic_algorithms_enabled()


REFUSED = {
    "a task too many": {"tasks": 11},
    "a memory too small": {"overrides": {"capacity": 1}},
    "a batch too large": {"overrides": {"batch_size": 2000}},
    "no such parameter": {"overrides": {"parameters": "foo"}},
}


@pytest.mark.parametrize("choices", REFUSED.values(), ids=REFUSED)
def test_a_refused_configuration_leaves_no_folder(tmp_path, choices):
    with pytest.raises(ConfigError):
        execute.execute(make_config("rotated-digits", "ocs", **choices), tmp_path, ONE_THREAD)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("alone", [True, False])
def test_nor_do_data_that_are_not_there(tmp_path, alone):
    config, options = (
        make_config("rotated-mnist", "ocs"),
        Options(data_dir=tmp_path / "data", offline=True, threads=1),
    )
    out = tmp_path / "runs"
    if alone:
        with pytest.raises(DataError, match="mnist is missing"):
            execute.execute(config, out, options)
    else:
        (outcome,) = make_runs_together([config], out, lanes=1, options=options)
        assert "mnist is missing" in outcome.error
    assert list(out.iterdir()) == []


def test_nor_does_one_among_runs_made_side_by_side(tmp_path):
    refused = make_config("rotated-digits", "ocs", tasks=11)
    (outcome,) = make_runs_together([refused], tmp_path, lanes=1)
    assert (outcome.status, outcome.error[:9]) == ("failed", "tasks=11:")
    assert list(tmp_path.iterdir()) == []


def refuse(*arguments, **keywords):
    raise ConfigError("refused on purpose")


def refuse_loggers(names, config, folder):
    """As one logger has written and the next one is not installed."""
    (folder / "tensorboard").mkdir()
    (folder / "tensorboard" / "events").write_text("begun")
    refuse()


def test_a_logger_that_is_not_there_leaves_no_folder(config, tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "make_loggers", refuse_loggers)
    with pytest.raises(ConfigError):
        execute.execute(config, tmp_path, ONE_THREAD)
    assert list(tmp_path.iterdir()) == []


class Stubborn:
    """A logger that does not close."""

    def log(self, step, values):
        pass

    def close(self):
        raise RuntimeError("the server is gone")


def test_a_logger_that_fails_on_closing_is_noted_and_spoils_nothing(config, tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "make_loggers", lambda *_: [Stubborn()])
    assert execute.execute(config, tmp_path, ONE_THREAD)["status"] == "done"
    assert names(tmp_path / config.digest())[-2:] == ["not logged", "done"]


def test_a_run_that_diverges_keeps_what_it_recorded(tmp_path):
    config = make_config(
        "rotated-digits", "uniform", tasks=1, record=("picks",), overrides={"sweeps": 1, "lr": 1e30}
    )
    found = execute.execute(config, tmp_path, ONE_THREAD)
    assert found["status"] == "diverged"
    assert len(numpy.load(tmp_path / config.digest() / "picks.npy")) >= 1


def test_a_failure_is_noted_before_its_folder_is_given_away(config, tmp_path, monkeypatch):
    folder = tmp_path / config.digest()

    def discard(folder):  # and another process begins there at once
        folder.joinpath("events.jsonl").write_text("")

    monkeypatch.setattr(execute, "discard", discard)
    monkeypatch.setattr(execute.Run, "step", refuse)
    with pytest.raises(ConfigError):
        execute.execute(config, tmp_path, ONE_THREAD)
    assert folder.joinpath("events.jsonl").read_text() == ""


def test_a_first_step_that_is_refused_leaves_no_folder(config, tmp_path, monkeypatch):
    monkeypatch.setattr(execute.Run, "step", refuse)
    with pytest.raises(ConfigError):
        execute.execute(config, tmp_path, ONE_THREAD)
    assert list(tmp_path.iterdir()) == []


def test_a_later_step_that_is_refused_is_recorded(config, tmp_path, monkeypatch):
    step = execute.Run.step
    monkeypatch.setattr(execute.Run, "step", lambda run: refuse() if run.position.step == 3 else step(run))
    with pytest.raises(ConfigError):
        execute.execute(config, tmp_path, ONE_THREAD)
    assert names(tmp_path / config.digest()) == ["started", "failed"]


@pytest.mark.parametrize("where", ["make_run", "make_loggers"])
def test_a_folder_that_was_there_with_content_stays_when_its_run_is_refused(
    config, tmp_path, monkeypatch, where
):
    folder = tmp_path / config.digest()
    folder.mkdir()
    EventLog(folder).write("failed", error="the process was killed")
    monkeypatch.setattr(execute, where, refuse)
    with pytest.raises(ConfigError):
        execute.execute(config, tmp_path, ONE_THREAD)
    assert (names(folder)[0], names(folder)[-1]) == ("failed", "failed")
    assert len(names(folder)) > 1


def test_a_run_that_another_process_holds_stays_whole(tmp_path):
    config = make_config("rotated-digits", "ocs", tasks=11)
    folder = tmp_path / config.digest()
    folder.mkdir()
    with locked(folder), pytest.raises(LockedError):
        execute.execute(config, tmp_path, ONE_THREAD)
    assert (folder / "lock").exists()


def test_a_run_says_which_format_its_digest_is_of(config, tmp_path):
    execute.execute(config, tmp_path, ONE_THREAD)
    record = json.loads((tmp_path / config.digest() / "config.json").read_text())
    assert record["format"] == FORMAT
