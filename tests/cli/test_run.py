import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from corestream.cli.options import read_toml

QUICK = ["--tasks", "2", "--sweeps", "1", "--threads", "1"]


@pytest.fixture
def run(cli, tmp_path):
    return lambda *arguments: cli("run", *arguments, *QUICK, "--out", tmp_path / "runs")


def only_folder(tmp_path):
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def test_a_run_leaves_its_files_and_says_what_it_found(run, tmp_path):
    answer = run("rotated-digits", "--method", "ocs")
    assert answer.status == 0
    folder = only_folder(tmp_path)
    assert "accuracy" in answer.out
    assert str(folder) in answer.out
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "events.jsonl", "accuracy.json", "checkpoint", "memory.safetensors"} <= names
    config = json.loads((folder / "config.json").read_text())
    assert config["digest"] == folder.name
    assert config["config"]["settings"]["sweeps"] == 1
    assert {"python", "versions", "commit", "device", "threads"} <= set(config["environment"])


def test_after_a_single_task_nothing_is_said_to_be_forgotten(cli, tmp_path):
    quick = ["--tasks", "1", "--sweeps", "1", "--threads", "1", "--out", tmp_path]
    answer = cli("run", "rotated-digits", "--method", "finetune", *quick)
    assert ", forgetting –\n" in answer.out


def test_plain_lines_tell_progress_where_there_is_no_terminal(run):
    answer = run("rotated-digits", "--method", "finetune")
    lines = answer.err.splitlines()
    assert [f"task {number}/2 done, accuracy" in line for number, line in enumerate(lines, 1)] == [True, True]
    assert "\x1b" not in answer.err


def test_json_is_all_that_stdout_holds(run, tmp_path):
    answer = run("rotated-digits", "--method", "finetune", "--json")
    found = json.loads(answer.out)
    assert found["folder"] == str(only_folder(tmp_path))
    assert found["status"] == "done"
    assert len(found["matrix"]) == 2
    assert found["matrix"][0][1] is None
    kept = json.loads((only_folder(tmp_path) / "accuracy.json").read_text())
    assert kept == {name: value for name, value in found.items() if name != "folder"}


def test_nothing_that_changes_from_run_to_run_is_in_the_accuracy_file(run, cli, tmp_path):
    run("rotated-digits", "--method", "ocs")
    again = cli("run", "rotated-digits", "--method", "ocs", *QUICK, "--out", tmp_path / "again")
    assert again.status == 0
    folder = only_folder(tmp_path)
    one, other = (path / folder.name / "accuracy.json" for path in (tmp_path / "runs", tmp_path / "again"))
    assert one.read_bytes() == other.read_bytes()


def test_picks_and_scores_on_request(run, tmp_path):
    assert run("rotated-digits", "--method", "ocs", "--record", "picks,scores").status == 0
    assert np.load(only_folder(tmp_path) / "picks.npy").shape == (50, 5)
    assert np.load(only_folder(tmp_path) / "scores.npy").shape == (50, 50, 4)


def test_hyperparameters_and_the_benchmarks_choices_are_options(run, tmp_path):
    answer = run("--tau", "10", "rotated-digits", "--method", "ocs", "--weights=1,0,1", "--angles", "random")
    assert answer.status == 0
    config = json.loads((only_folder(tmp_path) / "config.json").read_text())["config"]
    assert config["settings"]["tau"] == 10
    assert config["settings"]["weights"] == [1, 0, 1]
    assert config["options"]["angles"] == "random"


def test_a_file_gives_what_the_command_line_does_not(run, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        'benchmark = "rotated-digits"\nmethod = "ocs"\nnoise = 0.6\n[settings]\ntau = 5\nlam = 2.0\n'
    )
    assert run("--config", file, "--tau", "7").status == 0
    config = json.loads((only_folder(tmp_path) / "config.json").read_text())["config"]
    assert (config["noise"], config["settings"]["tau"], config["settings"]["lam"]) == (0.6, 7, 2.0)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('method = "ocs"\n', encoding="utf-8-sig")
    assert read_toml(file) == {"method": "ocs"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rotated-digts", "--method", "ocs"], "did you mean 'rotated-digits'"),
        (["rotated-digits", "--method", "osc"], "did you mean 'ocs'"),
        (["rotated-digits", "--method", "ocs", "--tua", "3"], "--tau"),
        (["rotated-digits", "--method", "ocs", "--nosie", "0.6"], "--noise"),
        (["rotated-digits", "--method", "ocs", "--tau", "much"], "tau is 'much'"),
        (["rotated-digits", "--method", "ocs", "--lr", "0"], "lr is 0.0; allowed are numbers above 0"),
        (["rotated-digits", "--method", "ocs", "--noise", "7"], "noise"),
        (["rotated-digits", "--method", "ocs", "--log", "tensorbord"], "did you mean 'tensorboard'"),
        (["rotated-digits", "--method", "ocs", "--classes-per-task", "3"], "classes_per_task"),
        (["rotated-digits", "--method", "ocs", "--device", "gpu"], "device"),
        (["rotated-digits", "extra", "--method", "ocs"], "extra"),
        (["rotated-digits", "--method", "finetune", "--tau", "3"], "unknown option for this method"),
        (["rotated-digits", "--method", "finetune", "--image-size", "8"], "unknown option for this method"),
        (
            ["rotated-digits", "--method", "ocs", "--weights", "1,1"],
            "allowed is 3 numbers with commas between",
        ),
        (
            ["rotated-digits", "--method", "ocs", "--model", "mlp", "--network", "mlp"],
            "two words for one choice",
        ),
        (["folder:", "--method", "ocs"], "names no folder"),
        (["rotated-digits"], "no method is given"),
        (["--method", "ocs"], "no benchmark is given"),
        (["rotated-digits", "--method", "ocs", "--config", "/no/such.toml"], "there is no file"),
    ],
)
def test_a_wrong_name_or_value_is_status_2_and_says_what_is_right(run, tmp_path, arguments, message):
    answer = run(*arguments)
    assert answer.status == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert not list(tmp_path.glob("runs/*/accuracy.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tau =", "is not a TOML file"),
        ("metod = 'ocs'", "did you mean 'method'"),
        ("tau = 1.0", "has 'tau' at its top; it belongs under [settings]"),
        ("full-classes = 'random'", "has 'full_classes' at its top; it belongs under [options]"),
        ("[options]\nnoise = 0.6", "every benchmark takes it; give it by itself"),
        ("seed = 'one'", "seed is 'one'"),
        ("settings = 3", "settings is 3"),
        ("[settings]\ntua = 3", "did you mean 'tau'"),
        ("a" + ".a" * 3000 + " = 1", "TOML|unknown option"),
    ],
)
def test_a_wrong_file_is_status_2_and_names_the_fault(run, tmp_path, text, message):
    file = tmp_path / "run.toml"
    file.write_text(text)
    answer = run("rotated-digits", "--method", "ocs", "--config", file)
    assert answer.status == 2
    assert any(part in answer.err for part in message.split("|"))


def test_pictures_of_ones_own_are_a_benchmark(cli, tmp_path):
    from PIL import Image

    generator = np.random.default_rng(0)
    for label in "abcd":
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(0, 255, (10, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / label / f"{number}.png")
    answer = cli(
        *("run", f"folder:{tmp_path / 'pictures'}", "--method", "ocs", "--image-size", "8"),
        *("--classes-per-task", "2", "--sweeps", "1", "--out", tmp_path / "runs", "--threads", "1", "--json"),
    )
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["tasks"] == 2
    config = json.loads((only_folder(tmp_path) / "config.json").read_text())["config"]
    assert config["settings"]["network"] == "mlp"


def test_a_missing_dataset_is_status_1_and_names_the_command_that_gets_it(run, tmp_path):
    answer = run("rotated-mnist", "--method", "ocs", "--data-dir", tmp_path / "empty", "--offline")
    assert answer.status == 1
    assert "corestream data fetch mnist" in answer.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_a_card_that_is_not_there_is_told(cli, tmp_path):
    words = "device is 'cuda', and torch finds no usable CUDA card here; use --device cpu"
    stream = ["rotated-digits", "--tasks", "1", "--device", "cuda", "--out", tmp_path / "runs"]
    alone = cli("run", *stream, "--method", "finetune")
    assert (alone.status, words in alone.err) == (2, True)
    several = cli("compare", *stream, "--methods", "finetune", "--seeds", "2")
    assert (several.status, several.err.count(f"failed: {words}")) == (2, 1)
    assert "… and 1 more run likewise" in several.err
    assert not list((tmp_path / "runs").iterdir())


def test_a_warning_is_one_line_and_told_once(tmp_path):
    """In a process of its own, where no test looks at warnings."""
    asked = ["run", "rotated-digits", "--method", "ocs", "--warm-start", "99", *QUICK, "--out", tmp_path]
    answer = subprocess.run(
        [sys.executable, "-m", "corestream", *map(str, asked)], capture_output=True, text=True, check=True
    )
    (line,) = [line for line in answer.stderr.splitlines() if "picked from at random" in line]
    assert line.startswith("corestream: all 25 batches of this task")
    assert "UserWarning" not in answer.stderr
