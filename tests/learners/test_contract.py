"""What every method promises, whatever it does: the verbs, a bounded memory, and a state that holds everything."""

import dataclasses

import pytest
import torch

from corestream import learners, models
from corestream.errors import NonFiniteError
from corestream.streams import from_tensors

SMALL = {
    "candidates": 30,
    "path_steps": 5,
    "capacity": 12,
    "replay": 4,
    "warm_start": 2,
    "width": 8,
    "search": 8,
}


@pytest.fixture(scope="module")
def samples():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 6
    return torch.rand(120, 1, 4, 4, generator=generator) + y[:, None, None, None] / 3, y


def small(method, **changes):
    """The method's settings on Rotated Digits, made small."""
    settings = learners.settings(method, "rotated-digits")
    known = {field.name for field in dataclasses.fields(settings)}
    values = {name: value for name, value in {**SMALL, **changes}.items() if name in known}
    return dataclasses.replace(settings, k=4, batch_size=10, sweeps=1, **values)


def make(method, stream, **changes):
    settings = small(method, **changes)
    model = models.for_stream(stream, settings, seed=1)
    return learners.build(method, model, settings, stream=stream, seed=2)


def learn(learner, tasks):
    torch.manual_seed(0)  # dropout draws from torch's own generator
    for task in tasks:
        learner.start_sweep()
        for x, y, *task_ids in task.train.with_batch_size(10):
            step = learner.observe(x, y, *task_ids)
            assert step.loss.shape == ()
            if step.picked is not None:
                assert len(step.picked) == len(step.picked.unique()) == min(4, len(y))
            else:
                assert len(y) <= 4  # the last batch, whole
        learner.end_task(task.train.with_batch_size(10))
        if learner.memory is not None:
            assert 0 < len(learner.memory) <= 12


@pytest.mark.parametrize("scenario", ["task", "class"])
@pytest.mark.parametrize("method", learners.names())
def test_every_method_learns_a_stream_within_its_memory(method, scenario, samples):
    stream = from_tensors(*samples, classes_per_task=2, scenario=scenario)
    learner = make(method, stream)
    before = [p.detach().clone() for p in learner.model.parameters()]
    learn(learner, stream)
    assert learner.task == 3
    assert any(not torch.equal(p, b) for p, b in zip(learner.model.parameters(), before, strict=True))
    assert all(p.isfinite().all() for p in learner.model.parameters())


@pytest.mark.parametrize("method", learners.names())
def test_a_state_goes_on_bit_for_bit(method, samples):
    stream = from_tensors(*samples, classes_per_task=2, scenario="task")
    first, second = make(method, stream), make(method, stream)
    learn(first, list(stream)[:2])
    first.observe(*next(iter(stream[2].train)))
    state = {name: value.clone().contiguous() for name, value in first.state_dict().items()}
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    second.load_state_dict(state)
    for learner in (first, second):
        learn(learner, [stream[2]])
    again = second.state_dict()
    assert set(again) == set(first.state_dict())
    for name, value in first.state_dict().items():
        assert torch.equal(value, again[name]), name


@pytest.mark.parametrize("method", learners.names())
def test_two_equal_seeds_learn_the_same(method, samples):
    stream = from_tensors(*samples, classes_per_task=2, scenario="class")
    found = []
    for _ in range(2):
        learner = make(method, stream)
        learn(learner, list(stream)[:2])
        found.append(learner.model.state_dict())
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


ADAPTING = [name for name in learners.names() if hasattr(small(name), "adapt")]


@pytest.mark.parametrize("method", [name for name in ADAPTING if name != "uniform"])  # random either way
def test_every_coreset_method_can_choose_what_the_current_task_trains_on(method, samples):
    stream = from_tensors(*samples, classes_per_task=2, scenario="task")
    learner, random = make(method, stream, adapt=True), make(method, stream)
    learn(learner, list(stream)[:1])
    learn(random, list(stream)[:1])
    assert any(
        not torch.equal(a, b)
        for a, b in zip(learner.model.parameters(), random.model.parameters(), strict=True)
    )


def test_the_coreset_methods_of_the_paper_adapt():
    expected = {
        "uniform",
        "icarl",
        "kmeans-features",
        "kmeans-embedding",
        "grad-matching",
        "bilevel",
        "gss",
        "er-mir",
    }
    assert set(ADAPTING) == expected


@pytest.mark.parametrize("method", ["finetune", "uniform", "er-mir", "gss", "ocs"])
def test_a_class_that_the_network_does_not_have_is_an_error(method, samples):
    stream = from_tensors(*samples, classes_per_task=2, scenario="class")
    learner = make(method, stream)
    x, y = next(iter(stream[0].train))
    with pytest.raises(ValueError, match=r"targets\[\d+\] is 6"):
        learner.observe(x, torch.full_like(y, 6))


@pytest.mark.parametrize("method", ["finetune", "uniform", "er-mir", "gss", "ocs"])
def test_a_class_that_the_task_does_not_announce_is_an_error(method, samples):
    stream = from_tensors(*samples, classes_per_task=2, scenario="task")
    learner = make(method, stream)
    x, y, task = next(iter(stream[0].train))
    before = [p.detach().clone() for p in learner.model.parameters()]
    with pytest.raises(NonFiniteError):
        learner.observe(x, torch.full_like(y, 5), task)
    assert all(torch.equal(p, b) for p, b in zip(learner.model.parameters(), before, strict=True))
