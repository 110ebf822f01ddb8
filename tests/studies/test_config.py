import dataclasses

import pytest

from corestream.errors import ConfigError
from corestream.studies.config import RunConfig, make_config, read_config, run_settings
from corestream.studies.files import write_json


def test_the_digest_is_that_of_the_configuration_and_the_seed():
    config = make_config("rotated-digits", "ocs", seed=1)
    assert config.digest() == make_config("rotated-digits", "ocs", seed=1).digest()
    others = [
        make_config("rotated-digits", "ocs", seed=2),
        make_config("rotated-digits", "ocs", seed=1, noise=0.6),
        make_config("rotated-digits", "ocs", seed=1, overrides={"tau": 1.0}),
        make_config("rotated-digits", "uniform", seed=1),
    ]
    assert len({config.digest(), *(other.digest() for other in others)}) == 5


def test_a_default_said_aloud_is_no_other_run():
    plain = make_config("split-cifar100", "ocs")
    aloud = make_config(
        "split-cifar100", "ocs", scenario="task", options={"class_order": "label"}, overrides={"tau": 1}
    )
    assert aloud.digest() == plain.digest()


def test_a_configuration_survives_its_file(tmp_path):
    config = make_config("rotated-digits", "ocs", record=("scores", "picks"), overrides={"weights": "1,0,1"})
    write_json(tmp_path / "config.json", {"config": config.to_dict(), "environment": {"python": "3"}})
    found, environment = read_config(tmp_path / "config.json")
    assert found == config
    assert found.digest() == config.digest()
    assert environment == {"python": "3"}
    assert run_settings(found).weights == (1.0, 0.0, 1.0)


def test_every_hyperparameter_is_in_the_configuration():
    config = make_config("rotated-mnist", "ocs")
    assert {"lr", "momentum", "lr_decay", "batch_size", "sweeps", "k", "tau", "lam"} <= set(config.settings)
    assert dataclasses.asdict(run_settings(config)) == {**config.settings, "weights": (1.0, 1.0, 1.0)}


@pytest.mark.parametrize(
    ("benchmark", "method", "choices", "message"),
    [
        ("rotated-digts", "ocs", {}, "did you mean 'rotated-digits'"),
        ("rotated-digits", "unifrom", {}, "did you mean 'uniform'"),
        ("rotated-digits", "ocs", {"overrides": {"tua": 1}}, "did you mean 'tau'"),
        ("rotated-digits", "ocs", {"overrides": {"tau": "much"}}, "tau is 'much'; allowed is a number"),
        ("rotated-digits", "ocs", {"overrides": {"tau": -1.0}}, "tau is -1.0"),
        ("rotated-digits", "ocs", {"noise": 1.5}, "noise is 1.5"),
        ("rotated-digits", "ocs", {"seed": -1}, "seed is -1"),
        ("rotated-digits", "ocs", {"tasks": 0}, "tasks is 0"),
        ("rotated-digits", "ocs", {"protocol": "papr"}, "did you mean 'paper'"),
        ("rotated-digits", "ocs", {"scenario": "task"}, "scenario"),
        ("rotated-digits", "ocs", {"record": ("pick",)}, "did you mean 'picks'"),
        ("rotated-digits", "ocs", {"device": "gpu"}, "device"),
        ("folder:/no/such/folder", "ocs", {}, "there is no folder"),
    ],
)
def test_a_wrong_choice_is_refused_with_what_is_allowed(benchmark, method, choices, message):
    with pytest.raises(ConfigError, match=message):
        make_config(benchmark, method, **choices)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"config": []},
        {"config": {"benchmark": "rotated-digits"}, "environment": {}},
        {"config": {"benchmark": "rotated-digits", "method": "ocs", "seed": "x"}, "environment": {}},
        {"config": {"benchmark": "rotated-digits", "method": "ocs", "sed": 1}, "environment": {}},
    ],
)
def test_a_damaged_file_is_a_clean_error_that_names_it(tmp_path, record):
    write_json(tmp_path / "config.json", record)
    with pytest.raises(ConfigError, match=r"config\.json is damaged"):
        read_config(tmp_path / "config.json")


def test_one_folder_is_one_configuration_from_wherever_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir(tmp_path)
    here = make_config("folder:pictures", "ocs")
    assert here.digest() == make_config(f"folder:{tmp_path}/pictures", "ocs").digest()


def test_the_network_for_a_folder_follows_the_size_of_its_pictures(tmp_path):
    large = make_config(f"folder:{tmp_path}", "ocs")
    small = make_config(f"folder:{tmp_path}", "ocs", options={"image_size": 8})
    chosen = make_config(f"folder:{tmp_path}", "ocs", overrides={"network": "mlp"})
    assert (large.settings["network"], large.settings["width"]) == ("resnet18", 20)
    assert (small.settings["network"], small.settings["width"]) == ("mlp", 256)
    assert (chosen.settings["network"], chosen.settings["width"]) == ("mlp", 256)


def test_settings_that_are_not_finite_are_refused():
    with pytest.raises(ConfigError, match="finite"):
        RunConfig("rotated-digits", "ocs", settings={"lr": float("nan")})
