import pytest
import torch

from corestream import learners, models, streams
from corestream.errors import DataError, NonFiniteError
from corestream.studies.config import make_config, run_settings
from corestream.studies.run import Run


def make(tmp_path, method="finetune", bad=None, **overrides):
    """A run on two tasks of random pictures; `bad` sets one training input to that value."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(80, 1, 8, 8, generator=generator)
    targets = torch.arange(80) % 4
    test = (inputs[:8].clone(), targets[:8])
    if bad is not None:
        inputs[42, 0, 3, 3] = bad
    stream = streams.from_tensors(inputs, targets, test=test, scenario="domain")
    config = make_config("rotated-digits", method, overrides={"batch_size": 10, "sweeps": 2, **overrides})
    settings = run_settings(config)
    learner = learners.build(method, models.for_stream(stream, settings, seed=0), settings, stream=stream)
    return Run(config, tmp_path, stream, stream, learner, settings)


def work(run):
    while not run.finished:
        run.step()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("method", ["finetune", "ocs"])
def test_an_input_that_is_not_finite_is_named_by_task_step_and_sample(tmp_path, method, value):
    run = make(tmp_path, method, bad=value)
    x, _ = run.stream[1].train.tensors()
    place = int((~torch.isfinite(x)).flatten(1).any(1).nonzero())
    with pytest.raises(DataError, match=rf"task 2, step \d+ .*training sample {place} is NaN or infinite"):
        work(run)


def test_a_look_after_the_fact_finds_the_same_sample(tmp_path):
    """As on a device, where nothing is read until the device is waited for."""
    run = make(tmp_path, "ocs", bad=float("nan"))
    run.watch._at_once = False
    with pytest.raises(DataError, match=r"task 2, .*sweep 0, .*is NaN or infinite"):
        work(run)


def test_huge_but_finite_inputs_are_no_error(tmp_path):
    run = make(tmp_path)
    batch = run.next_batch()
    batch.x.fill_(3e38)
    assert not batch.x.sum().isfinite()
    run.watch.check_inputs(batch, run.position)


def test_a_loss_that_is_not_finite_names_task_and_step(tmp_path):
    run = make(tmp_path, lr=1e30)
    with pytest.raises(
        NonFiniteError, match=r"task 1, step [1-9]\d* \(sweep 0, batch \d+\): .*diverged"
    ) as told:
        work(run)
    assert "task 0" not in str(told.value)


def test_an_update_that_spoils_the_parameters_is_found_without_another_loss(tmp_path):
    run = make(tmp_path)
    run.step()
    next(run.learner.model.parameters()).data[0, 0] = torch.nan
    with pytest.raises(NonFiniteError, match=r"task 1, step 1 .*parameter '.*' is not finite"):
        run.check()
