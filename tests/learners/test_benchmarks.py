"""Every method takes its first steps on every benchmark of the paper, with its own settings there."""

import dataclasses
import itertools
import os

import pytest

import corestream
from corestream import learners, models
from corestream.errors import DataError

SHORT = {"path_steps": 2, "path_points": 2}


def open_stream(name):
    if name != "rotated-digits" and not os.environ.get("CORESTREAM_DATA"):
        pytest.skip("needs the real files: set CORESTREAM_DATA to their folder")
    try:
        return corestream.benchmark(name, tasks=2, offline=True)
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("method", learners.names())
@pytest.mark.parametrize("name", ["rotated-digits", "rotated-mnist", "split-cifar100", "multi-datasets"])
def test_a_method_trains_on_a_benchmark(name, method):
    stream = open_stream(name)
    settings = learners.settings(method, name)
    known = {field.name for field in dataclasses.fields(settings)}
    settings = dataclasses.replace(settings, **{key: value for key, value in SHORT.items() if key in known})
    training = stream.joint() if method == "multitask" else stream
    model = models.for_stream(stream, settings, seed=0)
    learner = learners.build(method, model, settings, stream=training)
    for task in training:
        learner.start_sweep()
        for x, y, *task_ids in itertools.islice(task.train.with_batch_size(settings.batch_size), 2):
            assert learner.observe(x, y, *task_ids).loss.isfinite()
        learner.end_task(itertools.islice(task.train.with_batch_size(10), 1))
    if learner.memory is not None:
        assert set(learner.memory.counts()) == {0, 1}
