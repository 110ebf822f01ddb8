"""The paper's order on the embedded benchmark: OCS above uniform above finetune where most samples are noise."""

import pytest

import corestream
from corestream import learners, models
from corestream.studies.metrics import evaluate


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
    accuracies = [evaluate(model, task.test, stream.num_classes).accuracy for task in stream]
    return 100 * sum(accuracies) / len(accuracies)


@pytest.mark.slow
def test_ocs_is_above_uniform_is_above_finetune_on_the_noisy_stream():
    mean = {
        method: sum(accuracy(method, seed) for seed in range(4)) / 4
        for method in ("ocs", "uniform", "finetune")
    }
    assert mean["ocs"] > mean["uniform"] > mean["finetune"]
    assert mean["ocs"] >= 78
    assert mean["uniform"] <= 72
