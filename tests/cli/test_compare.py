import json
from dataclasses import replace

import pytest

from corestream.studies.results import Result
from corestream.studies.study import RunSet

REACHED = {"paper": 0.5, "best": 0.75}
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


def test_protocols_with_equal_settings_keep_to_their_own_runs(compare):
    answer = compare("rotated-digits", "--methods", "uniform,uniform:ocs-schedule", "--seeds", "1", "--json")
    assert answer.status == 0, answer.err
    assert [row["runs"] for row in json.loads(answer.out)["methods"].values()] == [1, 1]


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
        (["rotated-digits", "--methods", "mine"], "or one of your own, whose file CORESTREAM_IMPORT names"),
        (["rotated-mnits"], "did you mean 'rotated-mnist'"),
        (["mine"], "or a benchmark of your own, whose file CORESTREAM_IMPORT names"),
        (["rotated-digits", "--seeds", "0"], "--seeds"),
        ([], "no benchmark is given"),
        (["rotated-digits", "--methods", " , "], "names nothing"),
        (["rotated-digits", "--methods", "ocs:bset"], "did you mean 'best'"),
        (["rotated-digits", "--methods", "finetune,ocs:best"], "ocs has no best settings on rotated-digits"),
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
        ("seeds = 0\n", "seeds is 0; at least 1 is needed"),
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


def test_nor_where_all_runs_are_there_already(cli, compare, tmp_path):
    given = ["rotated-digits", "--methods", "finetune", "--seeds", "1"]
    assert compare(*given).status == 0
    answer = cli("compare", *given, *QUICK[:-1], "0", "--out", tmp_path / "runs")
    assert answer.status == 2
    assert "jobs is 0" in answer.err


@pytest.fixture
def ended(monkeypatch):
    """Every run ends at once, at the accuracy of its protocol; returns what was made."""
    made = []

    def make(self, **how):
        made.extend(self.configs)
        return []

    def results(self):
        return [
            Result(config.to_dict(), {"average_accuracy": REACHED[config.protocol], "forgetting": 0.1})
            for config in self.configs
        ]

    monkeypatch.setattr(RunSet, "make", make)
    monkeypatch.setattr(RunSet, "results", results)
    return made


def test_rows_are_named_after_the_protocol_that_made_them_and_json_as_they_were_asked_for(compare, ended):
    answer = compare(
        "split-cifar100", "--methods", "ocs:best,ocs:paper,uniform+ocs", "--seeds", "1", "--json"
    )
    assert answer.status == 0, answer.err
    found = json.loads(answer.out)["methods"]
    assert list(found) == ["ocs:best", "ocs:paper", "uniform+ocs"]
    assert [row["protocol"] for row in found.values()] == ["best", "paper", "paper"]
    assert [row["accuracy"]["mean"] for row in found.values()] == [75, 50, 50]
    assert [config.protocol for config in ended] == ["best", "paper", "paper"]
    plain = "split-cifar100", "--methods", "ocs", "--seeds", "1"
    assert "ocs:best" in compare(*plain).out
    assert list(json.loads(compare(*plain, "--json").out)["methods"]) == ["ocs"]


def test_runs_that_were_made_with_more_threads_are_told(compare, ended, monkeypatch):
    asked = "split-cifar100", "--methods", "ocs", "--seeds", "3", "--device", "cpu", "--json"
    assert compare(*asked).err == ""
    plain = RunSet.results
    made_with = {0: 1, 1: 8, 2: 4}
    monkeypatch.setattr(
        RunSet, "results", lambda self: [replace(one, threads=made_with[one.seed]) for one in plain(self)]
    )
    assert "2 runs found were made with more than the one thread of compare's own" in compare(*asked).err


@pytest.mark.parametrize(
    ("asked", "protocols"),
    [
        (["--methods", "ocs,uniform+ocs"], ["best", "paper"]),
        (["--methods", "ocs", "--protocol", "paper"], ["paper"]),
        (["--methods", "ocs:best,ocs", "--protocol", "paper"], ["best", "paper"]),
        (["--methods", "ocs,ocs:best"], ["best"]),
    ],
)
def test_a_plain_name_has_the_protocol_of_the_option_else_the_usual_one(compare, ended, asked, protocols):
    assert compare("split-cifar100", *asked, "--seeds", "1").status == 0
    assert [config.protocol for config in ended] == protocols


def test_an_error_of_all_runs_is_told_once(cli, tmp_path):
    files = ["--offline", "--data-dir", tmp_path / "empty", "--out", tmp_path / "runs", "--jobs", "1"]
    answer = cli("compare", "rotated-mnist", "--methods", "uniform,ocs", "--seeds", "2", *files)
    assert answer.status == 1
    assert answer.err.count("corestream data fetch mnist") == 1
    assert "uniform on rotated-mnist, seed 0: … and 3 more runs likewise" in answer.err


def test_a_warning_of_a_worker_is_told_once(cli, tmp_path):
    asked = ["--methods", "ocs", "--seeds", "2", "--tasks", "1", "--sweeps", "1", "--warm-start", "99"]
    where = ["--jobs", "1", "--out", tmp_path, "--device", "cpu"]
    answer = cli("compare", "rotated-digits", *asked, *where)
    assert answer.status == 0, answer.err
    (line,) = [line for line in answer.err.splitlines() if "picked from at random" in line]
    assert line.startswith(
        "ocs (sweeps 1, warm start 99) on rotated-digits --tasks 1, seed 0: all 25 batches"
    )


def test_the_table_is_headed_by_the_stream_as_it_is_asked_for(compare, ended):
    answer = compare("rotated-digits", "--methods", "ocs", "--seeds", "1", "--noise", "0.6", "--json")
    assert json.loads(answer.out)["stream"] == "rotated-digits --noise 0.6 --tasks 2"


def test_every_name_asked_for_has_its_entry(compare, ended):
    asked = "split-cifar100", "--methods", "ocs,ocs:best", "--seeds", "1"
    found = json.loads(compare(*asked, "--json").out)["methods"]
    assert list(found) == ["ocs", "ocs:best"]
    assert found["ocs"] == found["ocs:best"]
    assert compare(*asked).out.count("ocs:best") == 1


def test_a_method_without_a_finished_run_has_no_mean_and_says_so(compare):
    answer = compare("rotated-digits", "--methods", "finetune", "--seeds", "1", "--lr", "1e30", "--json")
    assert answer.status == 1
    row = json.loads(answer.out)["methods"]["finetune"]
    assert (row["runs"], row["diverged"]) == (0, 1)
    assert row["accuracy"] == row["forgetting"] == {"mean": None, "sd": None}


def test_a_files_settings_may_be_spelled_as_options(compare, tmp_path, ended):
    file = tmp_path / "mine.toml"
    file.write_text(
        'methods = ["ocs", "er-mir"]\n[settings]\nwarm-start = 3\n[settings.er-mir]\nbatch-size = 7\n'
    )
    answer = compare("rotated-digits", "--config", file, "--protocol", "paper", "--seeds", "1")
    assert answer.status == 0, answer.err
    ocs, er_mir = (config.settings for config in ended)
    assert (ocs["warm_start"], er_mir["batch_size"]) == (3, 7)


def test_a_files_word_on_one_method_goes_before_that_on_all_and_the_command_lines_before_both(
    compare, tmp_path, ended
):
    file = tmp_path / "mine.toml"
    file.write_text('methods = ["ocs", "er-mir"]\n[settings]\nreplay = 3\n[settings.ocs]\nreplay = 7\n')
    for given, expected in ((), (7, 3)), (("--replay", "4"), (4, 4)):
        answer = compare("rotated-digits", "--config", file, "--seeds", "1", *given)
        assert answer.status == 0, answer.err
        assert tuple(config.settings["replay"] for config in ended[-2:]) == expected


def test_a_row_is_named_as_its_runs_are_with_the_settings_that_are_not_its_own(compare, ended):
    asked = "rotated-digits", "--methods", "ocs", "--seeds", "2", "--tau", "1"
    answer = compare(*asked)
    assert answer.status == 0, answer.err
    assert "ocs (sweeps 1, tau 1)" in " ".join(answer.out.split())
    found = json.loads(compare(*asked, "--json").out)["methods"]
    assert {name: row["runs"] for name, row in found.items()} == {"ocs": 2}


def test_two_protocols_with_the_same_settings_are_one_run(compare, tmp_path):
    answer = compare(
        "rotated-digits", "--methods", "finetune,finetune:ocs-schedule", "--seeds", "1", "--json"
    )
    assert answer.status == 0, answer.err
    methods = json.loads(answer.out)["methods"]
    assert methods["finetune"] == methods["finetune:ocs-schedule"]
    assert len(list((tmp_path / "runs").glob("*/accuracy.json"))) == 1


def test_the_command_lines_model_wins_over_a_files_network(compare, tmp_path):
    (tmp_path / "study.toml").write_text("[settings]\nnetwork = 'resnet18'\n")
    answer = compare(
        "rotated-digits", "--config", tmp_path / "study.toml", "--methods", "finetune", "--model", "mlp", "--seeds", "1"
    )  # fmt: skip
    assert answer.status == 0, answer.err
    (config,) = (tmp_path / "runs").glob("*/config.json")
    assert json.loads(config.read_text())["config"]["settings"]["network"] == "mlp"
