import dataclasses
import shutil

import pytest

from corestream.errors import ConfigError, RunError
from corestream.studies.config import (
    FORMAT,
    RunConfig,
    make_config,
    read_config,
    run_settings,
    written_digest,
)
from corestream.studies.files import canonical, sha256, write_json


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


def test_a_number_of_another_type_is_no_other_run():
    plain = make_config("rotated-digits", "ocs", label_noise=1.0, imbalanced=True)
    spelled = make_config("rotated-digits", "ocs", noise=0, label_noise=1, imbalanced=1, deterministic=0)
    assert spelled.digest() == plain.digest()
    assert RunConfig.from_dict(spelled.to_dict()).digest() == spelled.digest()


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
        ("rotated-digits", "ocs", {"seed": 2**64}, "below 2⁶³"),
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
    with pytest.raises(RunError, match=r"config\.json is damaged"):
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


@pytest.fixture
def pictures(tmp_path):
    """A folder of two classes; what is in the files does not matter here."""
    folder = tmp_path / "pictures"
    for name in ("cat/a.png", "cat/b.png", "dog/a.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"picture")
    return folder


def add_a_file(folder):
    (folder / "dog" / "b.png").write_bytes(b"picture")


def remove_a_file(folder):
    (folder / "cat" / "b.png").unlink()


def rename_a_file(folder):
    (folder / "cat" / "b.png").rename(folder / "cat" / "c.png")


def move_a_file(folder):
    (folder / "cat" / "b.png").rename(folder / "dog" / "b.png")


def replace_a_file(folder):
    (folder / "cat" / "b.png").write_bytes(b"another picture")


def add_a_class(folder):
    (folder / "owl").mkdir()


CHANGES = [add_a_file, remove_a_file, rename_a_file, move_a_file, replace_a_file, add_a_class]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_pictures_in_a_folder_are_another_run(pictures, change):
    before = make_config(f"folder:{pictures}", "ocs")
    change(pictures)
    assert make_config(f"folder:{pictures}", "ocs").digest() != before.digest()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("half", ["train", "test"])
def test_so_are_changed_pictures_in_either_half(pictures, tmp_path, half, change):
    for name in ("train", "test"):
        shutil.copytree(pictures, tmp_path / "halves" / name)
    before = make_config(f"folder:{tmp_path}/halves", "ocs")
    change(tmp_path / "halves" / half)
    assert make_config(f"folder:{tmp_path}/halves", "ocs").digest() != before.digest()


def test_a_folder_put_back_from_a_copy_is_the_same_run(pictures, tmp_path):
    before = make_config(f"folder:{pictures}", "ocs")
    shutil.copytree(pictures, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(pictures)
    (tmp_path / "copy").rename(pictures)
    assert make_config(f"folder:{pictures}", "ocs").digest() == before.digest()


def test_what_the_stream_does_not_read_makes_no_other_run(pictures):
    before = make_config(f"folder:{pictures}", "ocs")
    (pictures / "README.txt").write_text("about the pictures")
    (pictures / "cat" / ".thumbnails").write_bytes(b"small pictures")
    (pictures / "cat" / "more").mkdir()
    assert make_config(f"folder:{pictures}", "ocs").digest() == before.digest()


def test_a_link_to_nowhere_is_no_error(pictures):
    (pictures / "cat" / "gone.png").symlink_to(pictures / "nowhere.png")
    assert make_config(f"folder:{pictures}", "ocs").fingerprint


def test_only_a_folder_has_a_fingerprint_and_it_survives_its_file(pictures, tmp_path):
    config = make_config(f"folder:{pictures}", "ocs")
    write_json(tmp_path / "config.json", {"config": config.to_dict(), "environment": {}})
    assert read_config(tmp_path / "config.json")[0] == config
    assert "fingerprint" not in make_config("rotated-digits", "ocs").to_dict()


def test_the_usual_scenario_of_a_folder_follows_its_split(pictures):
    assert make_config(f"folder:{pictures}", "ocs").scenario == "task"
    assert make_config(f"folder:{pictures}", "ocs", options={"split": "time"}).scenario == "domain"


def write_record(path, **more):
    config = make_config("rotated-digits", "ocs").to_dict()
    write_json(path, {"config": config, "environment": {}, **more})
    return {number: sha256(canonical({"format": number, **config}))[:16] for number in (FORMAT - 1, FORMAT)}


def test_a_written_digest_is_that_of_its_own_format(tmp_path):
    path = tmp_path / "config.json"
    digests = write_record(path, format=FORMAT - 1)
    assert written_digest(path) == digests[FORMAT - 1]
    assert digests[FORMAT] == make_config("rotated-digits", "ocs").digest()


def test_the_best_settings_are_refused_where_none_were_searched():
    with pytest.raises(
        ConfigError,
        match=r"^finetune has no best settings on rotated-digits; give paper or ocs-schedule$",
    ):
        make_config("rotated-digits", "finetune", protocol="best")
    assert make_config("rotated-mnist", "ocs", protocol="best").protocol == "best"
