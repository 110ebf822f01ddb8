"""A diverged run is marked, named and not averaged."""

import json


def test_a_diverged_run_is_marked_with_task_and_step_and_stays_marked(corestream, tmp_path):
    command = [
        "run",
        "rotated-digits",
        "--method",
        "finetune",
        "--tasks",
        "2",
        "--lr",
        "1e30",
        "--out",
        tmp_path,
    ]
    first = corestream.run(*command, "--json")
    assert first.returncode == 1
    found = json.loads(first.stdout)
    assert found["status"] == "diverged"
    assert found["average_accuracy"] is None
    assert "task 1, step " in found["note"]
    again = corestream.run(*command, "--json")
    assert (again.returncode, again.stdout) == (1, first.stdout)


def test_a_table_marks_the_diverged_run_and_does_not_average_it(corestream, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text("seeds = 2\ntasks = 1\n[settings]\nsweeps = 1\n[settings.finetune]\nlr = 1e30\n")
    study = corestream.run(
        *("compare", "rotated-digits", "--methods", "finetune,ocs", "--config", file),
        *("--out", tmp_path / "runs", "--json"),
    )
    found = json.loads(study.stdout)["methods"]
    assert found["finetune"]["diverged"] == 2
    assert found["finetune"]["runs"] == 0
    assert found["finetune"]["accuracy"]["mean"] is None
    assert found["ocs"]["runs"] == 2
    assert study.returncode == 1
