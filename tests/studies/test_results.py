import json
import re
from pathlib import Path

import pytest

from corestream.errors import DataError
from corestream.studies.config import FORMAT
from corestream.studies.results import Result, differing_fields, read_results, write_result

SETTINGS = {"loss_over": "task", "replay_from": "task", "tau": 1.0}
CONFIG = {"benchmark": "folder:/a b/c", "method": "mc-sgd+ocs", "seed": 3, "settings": SETTINGS}

FOUND = {"matrix": [[0.5, None], [0.4, 0.6]], "average_accuracy": 0.5, "forgetting": 0.1}


def test_a_result_comes_back_as_it_was_written(tmp_path: Path) -> None:
    result = Result(CONFIG, FOUND, device="cpu", seconds=1.5)
    path = write_result(result, tmp_path)
    assert path.parent == tmp_path
    assert read_results(tmp_path) == [result]


def test_a_run_older_than_a_setting_was_made_as_it_is_by_default(tmp_path: Path) -> None:
    older = Result({**CONFIG, "settings": {"tau": 1.0}}, FOUND, device="cpu")
    write_result(older, tmp_path)
    (found,) = read_results(tmp_path)
    assert found.config["settings"] == {"loss_over": "all", "replay_from": "memory", "tau": 1.0}


def test_a_foreign_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"config": 3}')
    with pytest.raises(DataError, match=r"other\.json"):
        read_results(tmp_path)


def test_a_status_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    path = write_result(Result(CONFIG, FOUND), tmp_path)
    path.write_text(path.read_text().replace('"done"', '"eone"'))
    with pytest.raises(DataError, match="its status is 'eone'"):
        read_results(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        read_results(tmp_path / "nowhere")


def test_seed_and_device_may_differ_and_no_setting() -> None:
    other = {**CONFIG, "seed": 4, "settings": {**SETTINGS, "tau": 2.0}}
    assert differing_fields([Result(CONFIG, {}), Result({**CONFIG, "seed": 9, "device": "cuda"}, {})]) == []
    assert differing_fields([Result(CONFIG, {}), Result(other, {})]) == ["settings.tau"]


def test_a_result_of_a_version_whose_runs_were_others_is_passed_over(tmp_path: Path) -> None:
    path = write_result(Result(CONFIG, FOUND), tmp_path)
    assert len(read_results(tmp_path)) == 1
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "format": FORMAT - 1, "accuracy": {"of": "old"}}))
    assert read_results(tmp_path) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"accuracy": {**FOUND, "average_accuracy": "much"}}, "average_accuracy"),
        ({"accuracy": {**FOUND, "average_accuracy": None}}, "average_accuracy"),
        ({"accuracy": {"matrix": []}}, "average_accuracy"),
        ({"accuracy": {**FOUND, "matrix": [0.5, 0.6]}}, "matrix"),
        ({"accuracy": None}, "not a result"),
        ({"seconds": "long"}, "seconds"),
        ({"config": {**CONFIG, "seed": "first"}}, "seed"),
        ({"config": {"method": "ocs", "seed": 0}}, "benchmark"),
    ],
)
def test_a_result_that_is_not_as_it_was_written_is_named_with_what_is_wrong(
    tmp_path: Path, wrong: dict[str, object], named: str
) -> None:
    path = write_result(Result(CONFIG, FOUND), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    with pytest.raises(DataError, match=rf"{re.escape(path.name)} .*{named}.*; move it away"):
        read_results(tmp_path)


def test_a_diverged_result_has_no_accuracy(tmp_path: Path) -> None:
    write_result(Result(CONFIG, {**FOUND, "average_accuracy": None}, "diverged", "at step 3"), tmp_path)
    assert [result.status for result in read_results(tmp_path)] == ["diverged"]


def test_the_result_of_a_folder_with_a_long_path_has_a_shorter_name(tmp_path: Path) -> None:
    config = {**CONFIG, "benchmark": f"folder:/{'long/' * 200}ünü/{'é' * 49}/pictures"}
    path = write_result(Result(config, FOUND), tmp_path)
    assert len(path.name.encode()) < 140
    assert "_pictures-mc-sgd+ocs-seed3-" in path.name
    assert [result.config for result in read_results(tmp_path)] == [config]
    assert write_result(Result(CONFIG, FOUND), tmp_path).name.startswith("folder_a_b_c-mc-sgd+ocs-seed3-")
