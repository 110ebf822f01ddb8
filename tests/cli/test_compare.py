import json

import pytest

QUICK = ["--tasks", "2", "--sweeps", "1", "--jobs", "1"]


@pytest.fixture
def compare(cli, tmp_path):
    return lambda *arguments: cli("compare", *arguments, *QUICK, "--out", tmp_path / "runs")


def test_a_table_of_means_over_seeds_and_only_missing_runs_are_made(compare, tmp_path):
    first = compare("rotated-digits", "--methods", "finetune,uniform", "--seeds", "2", "--json")
    assert first.status == 0, first.err
    found = json.loads(first.out)["methods"]
    assert {name: row["runs"] for name, row in found.items()} == {"finetune": 2, "uniform": 2}
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/accuracy.json")}
    assert len(made) == 4
    accuracies = [
        json.loads(path.read_text())["average_accuracy"]
        for path in made
        if json.loads(path.read_text())["method"] == "uniform"
    ]
    assert found["uniform"]["accuracy"]["mean"] == pytest.approx(50 * sum(accuracies))

    second = compare("rotated-digits", "--methods", "finetune,uniform", "--seeds", "2")
    assert second.status == 0
    assert "finetune" in second.out
    assert "±" in second.out
    assert all(path.stat().st_mtime_ns == time for path, time in made.items())


def test_a_hyperparameter_goes_to_the_methods_that_have_it(compare, tmp_path):
    answer = compare("rotated-digits", "--methods", "finetune,ocs", "--seeds", "1", "--tau", "3", "--json")
    assert answer.status == 0, answer.err
    taus = {}
    for path in (tmp_path / "runs").glob("*/config.json"):
        config = json.loads(path.read_text())["config"]
        taus[config["method"]] = config["settings"].get("tau")
    assert taus == {"finetune": None, "ocs": 3.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rotated-digits", "--methods", "finetune,osc"], "did you mean 'ocs'"),
        (
            ["rotated-digits", "--methods", "finetune", "--tau", "3"],
            "unknown option for these methods 'tau'",
        ),
        (["rotated-mnits"], "did you mean 'rotated-mnist'"),
        (["rotated-digits", "--seeds", "0"], "--seeds"),
        ([], "no benchmark is given"),
        (["rotated-digits", "--methods", " , "], "names nothing"),
    ],
)
def test_a_wrong_name_or_value_is_status_2(compare, arguments, message):
    answer = compare(*arguments)
    assert answer.status == 2
    assert message in answer.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'methods = ["uniform"]\n[settings.icarl]\nlam = 1.0\n',
            "icarl is none of the methods compared, uniform",
        ),
        ("methods = []\n", "methods is empty"),
    ],
)
def test_a_file_that_asks_for_nothing_is_refused(compare, tmp_path, content, message):
    (tmp_path / "mine.toml").write_text('benchmark = "rotated-digits"\n' + content)
    answer = compare("--config", tmp_path / "mine.toml")
    assert answer.status == 2
    assert message in answer.err


def test_no_jobs_at_all_is_refused(cli, tmp_path):
    answer = cli("compare", "rotated-digits", "--methods", "finetune", "--jobs", "0", "--out", tmp_path)
    assert answer.status == 2
    assert "jobs is 0" in answer.err
