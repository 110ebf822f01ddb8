"""The paper's order on the embedded benchmark: OCS above uniform above finetune where most samples are noise."""

import pytest

import corestream
from corestream import learners, models
from corestream.studies.metrics import average_accuracy, empty_matrix, evaluate


def accuracy(method, seed):
    stream = corestream.benchmark("rotated-digits", noise=0.6, seed=seed)
    settings = learners.settings(method, "rotated-digits")
    model = models.for_stream(stream, settings, seed=seed)
    learner = learners.build(method, model, settings, stream=stream, seed=seed)
    for task in stream:
        for _ in range(settings.sweeps):
            learner.start_sweep()
            for x, y in task.train.with_batch_size(settings.batch_size):
                learner.observe(x, y)
        learner.end_task()
    matrix = empty_matrix(len(stream))
    for task in stream:
        matrix[-1, task.index] = evaluate(model, task.test, stream.num_classes).accuracy
    return 100 * average_accuracy(matrix)


@pytest.mark.slow
def test_ocs_is_above_uniform_is_above_finetune_on_the_noisy_stream():
    mean = {
        method: sum(accuracy(method, seed) for seed in range(4)) / 4
        for method in ("ocs", "uniform", "finetune")
    }
    assert mean["ocs"] > mean["uniform"] > mean["finetune"]
    assert mean["ocs"] >= 78
    assert mean["uniform"] <= 72
