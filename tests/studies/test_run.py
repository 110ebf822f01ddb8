import numpy as np
import pytest
import torch
from PIL import Image

from corestream import learners
from corestream.errors import ConfigError, DataError, RunError
from corestream.studies import checkpoint
from corestream.studies.config import make_config
from corestream.studies.run import make_run

SMALL = {"sweeps": 2, "batch_size": 100}


def configure(method, **choices):
    return make_config(
        "rotated-digits", method, tasks=2, noise=0.3, overrides=SMALL, record=("picks",), **choices
    )


def work(config, folder, until=None):
    """Start or go on, until the end or a step; everything is saved there."""
    folder.mkdir(exist_ok=True)
    run = make_run(config, folder)
    run.restore()
    while not run.finished and run.position.step != until:
        run.step()
    run.save()
    return run


@pytest.mark.parametrize("method", learners.names())
def test_every_method_interrupted_and_continued_ends_bit_equal(method, tmp_path):
    config = configure(method)
    whole = work(config, tmp_path / "whole")
    task_end = whole.position.step // len(whole.training)
    for step in (3, task_end, task_end + 5, whole.position.step - 1):
        torch.manual_seed(step)  # what happens between two processes must not matter
        work(config, tmp_path / "torn", until=step)
    torn = work(config, tmp_path / "torn")
    assert torn.position == whole.position
    assert torn.ledger.facts() == whole.ledger.facts()
    one, other = whole.learner.state_dict(), torn.learner.state_dict()
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
    picks = [np.load(tmp_path / name / "picks.npy") for name in ("whole", "torn")]
    assert np.array_equal(*picks)


def test_records_damaged_since_the_last_checkpoint_cost_no_more_than_that(tmp_path):
    config = configure("uniform")
    whole = work(config, tmp_path / "whole")
    for step in (5, 9):  # two checkpoints
        work(config, tmp_path / "torn", until=step)
    path = tmp_path / "torn" / "picks.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # in the rows of the second
    path.write_bytes(content)
    again = make_run(config, tmp_path / "torn")
    saved = again.restore()
    assert again.position.step == 5
    assert "has other rows than picks.npy" in saved.passed_over[0]
    torn = work(config, tmp_path / "torn")
    assert torn.ledger.facts() == whole.ledger.facts()
    assert path.read_bytes() == (tmp_path / "whole" / "picks.npy").read_bytes()
    path.unlink()
    with pytest.raises(RunError, match=r"no checkpoint .* can be used: .*picks\.npy, which cannot be read"):
        make_run(config, tmp_path / "torn").restore()


def test_a_checkpoint_that_says_too_little_is_passed_over(tmp_path):
    config = configure("uniform")
    work(config, tmp_path, until=5)
    checkpoint.save(tmp_path / "checkpoint", config.digest(), {}, {"position": {}})
    run = make_run(config, tmp_path)
    assert "says nothing of labels, ledger, random, records" in run.restore().passed_over[0]
    assert run.position.step == 5


def test_the_matrix_is_filled_up_to_the_task_learned(tmp_path):
    run = work(configure("uniform"), tmp_path / "run")
    (first, nothing), last = run.ledger.matrix
    assert nothing is None
    assert all(0 <= value <= 1 for value in (first, *last))
    assert run.ledger.averages()["average_accuracy"] == pytest.approx(sum(last) / 2)


def test_joint_training_is_judged_on_every_task(tmp_path):
    run = work(configure("multitask"), tmp_path / "run")
    assert run.ledger.matrix[0] == [None, None]
    assert all(value is not None for value in run.ledger.matrix[1])
    averages = run.ledger.averages()
    assert averages["average_accuracy"] is not None
    assert averages["forgetting"] is None


def test_picks_are_places_in_the_training_set(tmp_path):
    run = work(configure("ocs"), tmp_path / "run")
    picks = np.load(tmp_path / "run" / "picks.npy")
    assert picks.shape == (run.position.step, run.settings.k)
    half = len(picks) // 2
    noise = run.stream[0].train.is_noise.numpy()
    assert run.ledger.trained[0]["noise"] == noise[picks[:half]].mean()
    assert run.ledger.trained[0]["samples"] == picks[:half].size


def test_what_the_memory_holds_is_counted_with_its_noise(tmp_path):
    run = work(configure("ocs"), tmp_path / "run")
    memory = run.learner.memory
    kept = [
        bool(run.stream[task].train.is_noise[place])
        for task, place in zip(memory.tasks.tolist(), memory.ids.tolist(), strict=True)
    ]
    assert run.ledger.memory[-1]["samples"] == len(memory)
    assert run.ledger.memory[-1]["noise"] == sum(kept) / len(kept)


def test_evaluation_leaves_mode_and_random_state_alone(tmp_path):
    run = make_run(configure("ocs", seed=1), tmp_path)
    run.learner.model.train()
    before = torch.get_rng_state()
    run.evaluate(2)
    assert run.learner.model.training
    assert torch.equal(torch.get_rng_state(), before)


def test_equal_seeds_give_equal_runs_and_others_do_not(tmp_path):
    one = work(configure("ocs"), tmp_path / "one")
    two = work(configure("ocs"), tmp_path / "two")
    other = work(configure("ocs", seed=1), tmp_path / "other")
    assert one.ledger.facts() == two.ledger.facts()
    assert one.ledger.facts() != other.ledger.facts()


def test_the_share_done_rises_from_zero_to_one(tmp_path):
    run = make_run(configure("finetune"), tmp_path)
    shares = [run.share_done]
    while not run.finished:
        run.step()
        shares.append(run.share_done)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)


def test_a_batch_that_a_task_cannot_fill_is_refused(tmp_path):
    config = make_config("rotated-digits", "finetune", overrides={"batch_size": 1298})
    with pytest.raises(ConfigError, match=r"batch_size is 1298; task 1 has only 1,297 training samples"):
        make_run(config, tmp_path)
    whole = make_config("rotated-digits", "finetune", tasks=1, overrides={"batch_size": 1297, "sweeps": 1})
    assert work(whole, tmp_path / "whole").position.step == 1
    joint = make_config("rotated-digits", "multitask", tasks=2, overrides={"batch_size": 1298})
    assert len(make_run(joint, tmp_path).training) == 1


def test_a_later_task_that_cannot_fill_a_batch_is_found_before_the_first_step(tmp_path):
    config = make_config("rotated-digits", "finetune", seed=1, imbalanced=True, overrides={"batch_size": 350})
    with pytest.raises(ConfigError, match="task 2 has only 343 training samples"):
        make_run(config, tmp_path)


def test_a_setting_that_the_learner_does_not_take_is_told_as_one(tmp_path):
    config = make_config("rotated-digits", "ocs", overrides={"parameters": "foo"})
    with pytest.raises(ConfigError, match="no parameter or module named 'foo'"):
        make_run(config, tmp_path)


def test_a_run_does_not_go_on_with_other_pictures_than_it_began_with(tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "pictures" / label / f"{number}.bmp")
    overrides = {"network": "mlp", "sweeps": 1, "batch_size": 4}
    config = make_config(
        f"folder:{tmp_path}/pictures", "finetune", options={"image_size": 8}, overrides=overrides
    )
    work(config, tmp_path / "run", until=1)
    (tmp_path / "pictures" / "cat" / "0.bmp").unlink()
    with pytest.raises(DataError, match="no longer holds the pictures"):
        work(config, tmp_path / "run")
