import json
import time
from dataclasses import replace

import pytest

from corestream.errors import ConfigError, RunError
from corestream.studies import study
from corestream.studies.config import make_config
from corestream.studies.drive import Options
from corestream.studies.events import EventLog
from corestream.studies.execute import execute
from corestream.studies.files import canonical, sha256
from corestream.studies.grouping import table_of
from corestream.studies.pool import Outcome, Watcher
from corestream.studies.study import RunSet, make_alone, read_run, read_runs, unfinished_runs
from corestream.studies.tables import make_cell


def configure(seed=0, **overrides):
    return make_config("rotated-digits", "finetune", seed=seed, tasks=1, overrides={"sweeps": 1, **overrides})


@pytest.fixture
def two(tmp_path):
    """A set of two runs of which one is made."""
    runs = RunSet([configure(0), configure(1), configure(0)], tmp_path)
    execute(configure(0), tmp_path, Options(threads=1))
    return runs


def test_a_set_knows_what_it_has(two):
    assert [config.seed for config in two.configs] == [0, 1]
    assert [config.seed for config in two.missing()] == [1]
    assert [result.seed for result in two.results()] == [0]


def test_a_place_where_no_run_can_be_kept_is_told_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file: no run can be kept there \(File exists\)"):
        RunSet([configure(0), configure(1)], tmp_path / "file").make(jobs=2)


def test_a_result_tells_where_and_how_long(two):
    (result,) = two.results()
    assert result.status == "done"
    assert result.device == "cpu"
    assert result.seconds > 0
    assert result.config == two.configs[0].to_dict()


def test_a_failed_run_is_told_with_its_reason_until_it_is_made(two):
    folder = two.out / two.configs[1].digest()
    folder.mkdir()
    log = EventLog(folder)
    log.write("failed", error="MemoryError: too large")
    failed = two.results()[1]
    assert (failed.status, failed.note) == ("failed", "MemoryError: too large")
    assert [config.seed for config in two.missing()] == [1]
    log.write("started")
    assert len(two.results()) == 1  # it is under way again
    assert make_cell([two.results()[0], failed], expected=2).holes == "1 failed"


def test_a_diverged_run_is_no_number(two):
    diverging = configure(1, lr=1e30)
    execute(diverging, two.out, Options(threads=1))
    result = read_run(two.out / diverging.digest())
    assert result.status == "diverged"
    assert result.note.startswith("task 1, step")
    assert result.accuracy["average_accuracy"] is None
    assert make_cell([result]).measured == {}


def test_runs_that_differ_in_configuration_are_not_averaged(two):
    other = configure(1, lr=0.5)
    execute(other, two.out, Options(threads=1))
    with pytest.raises(RunError, match=r"differ in settings\.lr"):
        make_cell(read_runs(two.out))


def test_a_folder_that_was_tampered_with_is_not_taken(two):
    path = two.out / two.configs[0].digest() / "accuracy.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "digest": "f" * 16}))
    with pytest.warns(UserWarning, match="belongs to another configuration"):
        (result,) = two.results()
    assert (result.status, result.accuracy) == ("failed", {})


def test_no_process_at_all_is_refused(two):
    with pytest.raises(ConfigError, match="jobs is 0"):
        two.make(jobs=0)


@pytest.fixture
def old(two):
    """The folder of a run that was made by the first format."""
    record = two.configs[0].to_dict()
    digest = sha256(canonical({"format": 1, **record}))[:16]
    folder = (two.out / two.configs[0].digest()).rename(two.out / digest)
    for name in ("config.json", "accuracy.json"):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, "format": 1, "digest": digest}))
    return folder


def test_a_run_of_an_older_format_is_read(two, old):
    (result,) = read_runs(two.out)
    assert (result.status, result.folder, result.older) == ("done", old, True)


def test_of_two_runs_of_one_configuration_the_one_of_now_is_shown(two, old):
    execute(two.configs[0], two.out, Options(threads=1))
    folders = {two.out / two.configs[0].digest(): False, old: True}
    assert {result.folder: result.older for result in read_runs(two.out)} == folders
    for results in (read_runs(two.out), read_runs(two.out)[::-1]):
        (cell,) = table_of(results).cells.values()
        assert [(result.seed, result.older) for result in cell.results] == [(0, False)]


def test_a_run_of_an_older_format_is_never_taken_for_one_of_now(two, old):
    assert [config.seed for config in two.missing()] == [0, 1]
    old.rename(two.out / two.configs[0].digest())
    with pytest.warns(UserWarning, match="belongs to another configuration"):
        (result,) = two.results()
    assert result.status == "failed"


def test_an_older_run_whose_configuration_was_changed_is_not_taken(two, old):
    path = old / "config.json"
    record = json.loads(path.read_text())
    record["config"]["seed"] = 7
    path.write_text(json.dumps(record))
    with pytest.raises(RunError, match="belongs to another configuration"):
        read_run(old)


@pytest.mark.parametrize("name", ["config.json", "accuracy.json"])
def test_a_damaged_run_is_named_and_the_others_are_read(two, name):
    other = configure(1)
    execute(other, two.out, Options(threads=1))
    damaged = two.out / other.digest() / name
    damaged.write_text("{\n")
    with pytest.warns(UserWarning, match=str(damaged)):
        (result,) = read_runs(two.out)
    assert result.seed == 0


def test_a_damaged_log_costs_a_finished_run_no_more_than_its_time(two):
    execute(configure(1), two.out, Options(threads=1))
    log = two.out / configure(1).digest() / "events.jsonl"
    log.write_text(log.read_text() + "garbage\n")
    with pytest.warns(UserWarning, match=rf"how long a run took is not known: {log}, line \d+ is damaged"):
        one, other = read_runs(two.out)
    assert {one.seed: one.seconds is None, other.seed: other.seconds is None} == {0: False, 1: True}


def test_a_run_that_was_refused_failed_and_is_not_missing(tmp_path):
    config = make_config("rotated-digits", "uniform", tasks=1, overrides={"sweeps": 1, "capacity": 5})
    runs = RunSet([config, configure(0)], tmp_path)
    assert [outcome.status for outcome in runs.make(jobs=1)] == ["failed", "done"]
    assert not (tmp_path / config.digest()).exists()
    result, _ = runs.results()
    assert result.status == "failed"
    assert "capacity is 5" in result.note


def test_where_all_are_refused_the_whole_is(tmp_path):
    runs = RunSet(
        [make_config("rotated-digits", "finetune", tasks=11, seed=seed) for seed in (0, 1)], tmp_path
    )
    with pytest.raises(ConfigError, match=r"^tasks=11: rotated-digits has 10 tasks"):
        runs.make(jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_leaves_a_hole_and_is_not_overwritten(two):
    path = two.out / two.configs[0].digest() / "accuracy.json"
    path.write_text("{\n")
    assert [config.seed for config in two.missing()] == [1]
    assert [outcome.config.seed for outcome in two.make(jobs=1)] == [1]
    assert path.read_text() == "{\n"
    with pytest.warns(UserWarning, match=f"counts as failed: {path} is damaged"):
        damaged, whole = two.results()
    assert (damaged.status, damaged.seed, whole.status) == ("failed", 0, "done")


def test_a_result_that_nobody_can_tell_whose_it_is_is_named(two):
    folder = two.out / two.configs[0].digest()
    (folder / "config.json").unlink()
    with pytest.warns(UserWarning, match=f"left out: {folder} has a result and no config.json"):
        assert read_runs(two.out) == []


def test_a_result_without_its_configuration_file_is_taken(two):
    (two.out / two.configs[0].digest() / "config.json").unlink()
    (result,) = two.results()
    assert (result.status, result.config) == ("done", two.configs[0].to_dict())


def test_a_run_alone_on_a_card_is_made_there_and_raises_what_stops_it(tmp_path, monkeypatch):
    one, asked = replace(configure(0), device="cuda"), []
    stopped = RunError("the card is gone")

    def fail(configs, out, **how):
        asked.append((configs, out, how["lanes"]))
        return [Outcome(one, "failed", str(stopped), stopped)]

    monkeypatch.setattr(study, "make_runs_together", fail)
    with pytest.raises(RunError, match="the card is gone"):
        make_alone(one, tmp_path, Options(), Watcher())
    assert asked == [([one], tmp_path, 1)]

    def diverge(configs, out, **how):
        folder = out / one.digest()
        folder.mkdir()
        found = {"status": "diverged", "matrix": [], "digest": one.digest()}
        (folder / "accuracy.json").write_text(json.dumps(found))
        return [Outcome(one, "diverged", "at step 3")]

    monkeypatch.setattr(study, "make_runs_together", diverge)
    assert make_alone(one, tmp_path, Options(), Watcher())["status"] == "diverged"
    monkeypatch.setattr(study, "make_runs_together", fail)
    assert make_alone(one, tmp_path, Options(), Watcher())["status"] == "diverged"  # as it was found


def test_a_result_tells_the_threads_it_was_made_with(two):
    assert [result.threads for result in read_runs(two.out)] == [1]


def test_a_result_tells_when_it_was_made_by_the_times_that_are_dates(two):
    (folder,) = two.out.iterdir()
    before, (result,) = time.time(), two.results()
    for wrong in (1e300, 10**400, float("nan"), "noon"):
        EventLog(folder).write("resumed", time=wrong)
    assert 0 < result.made <= before
    assert [one.made for one in two.results()] == [result.made]


WRONG = [
    {"average_accuracy": None},
    {"average_accuracy": "much"},
    {"average_accuracy": 10**400},
    {"forgetting": "little"},
    {"matrix": [0.5]},
    {"matrix": [["much"]]},
    {"matrix": [[0.5, 0.5], [0.5, 0.5]]},
    {"trained": [{"samples": 3}]},
    {"trained": {"samples": 3, "noise": 0.0}},
    {"memory": ["full"]},
    {"memory": [{"noise": 0.5}]},
    {"memory": [{"samples": 3, "classes": ["0"]}]},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: str(wrong)[:50])
def test_a_result_of_another_shape_is_named_and_the_others_are_read(two, wrong):
    other = configure(1)
    execute(other, two.out, Options(threads=1))
    path = two.out / other.digest() / "accuracy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    with pytest.warns(UserWarning, match=rf"{path} is not a run's result \(.*{next(iter(wrong))}"):
        assert [result.seed for result in read_runs(two.out)] == [0]
    assert two.missing() == []
    with pytest.warns(UserWarning, match="counts as failed"):
        results = two.results()
    assert make_cell(results).holes == "1 failed"


def test_runs_that_were_begun_and_have_not_ended_are_known(two):
    for seed in (1, 2, 3):
        folder = two.out / execute(configure(seed), two.out, Options(threads=1))["digest"]
        (folder / "accuracy.json").unlink()
    EventLog(two.out / configure(2).digest()).write("failed", error="MemoryError")
    (two.out / configure(3).digest() / "config.json").write_text("{")
    assert unfinished_runs(two.out) == {two.out / configure(1).digest(): configure(1)}
