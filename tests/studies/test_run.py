import numpy as np
import pytest
import torch

from corestream import learners
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
