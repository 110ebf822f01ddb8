import dataclasses
import json

import pytest

from corestream import learners, streams
from corestream.cli.hyperparameters import split
from corestream.errors import ConfigError
from corestream.studies.config import make_config


@pytest.mark.parametrize("command", ["run", "compare"])
def test_every_hyperparameter_and_every_choice_has_its_option(cli, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = cli(command, "--help").out
    names = {
        field.name for method in learners.METHODS.values() for field in dataclasses.fields(method.settings)
    }
    names |= {name for benchmark in streams.BENCHMARKS.values() for name in benchmark.options}
    missing = [name for name in names if f"--{name.replace('_', '-')} " not in shown]
    assert missing == []


def test_each_value_goes_where_it_belongs():
    settings = make_config("split-cifar100", "ocs").settings
    hyper, choices = split("split-cifar100", settings, {"tau": "3", "classes_per_task": "10"})
    assert hyper == {"tau": "3"}
    assert choices == {"classes_per_task": 10}


def test_what_neither_has_is_refused():
    settings = make_config("rotated-digits", "finetune").settings
    with pytest.raises(ConfigError, match="'classes_per_task'"):
        split("rotated-digits", settings, {"classes_per_task": "3"})


def test_the_place_on_the_command_line_does_not_matter(cli, tmp_path):
    quick = ["--tasks", "1", "--sweeps", "1", "--threads", "1", "--json", "--out", tmp_path]
    before = cli("run", "--tau", "3", "rotated-digits", "--method", "ocs", *quick)
    after = cli("run", "rotated-digits", "--method", "ocs", *quick, "--tau=3.0")
    assert before.status == after.status == 0
    assert json.loads(before.out)["digest"] == json.loads(after.out)["digest"]
