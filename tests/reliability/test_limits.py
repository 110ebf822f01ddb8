"""Memory that is bounded: the engine by its budget, a run by nothing that grows with the stream."""

import json
import resource
import subprocess
import sys

import pytest
import torch

from corestream import learners, models, streams
from corestream.studies.config import make_config, run_settings
from corestream.studies.run import Run

ENGINE = """
import json, resource, sys
import torch
from torch import nn
from corestream import per_sample_gradients

torch.set_num_threads(1)
torch.manual_seed(0)
kind, budget = sys.argv[1], int(sys.argv[2])
n = 4096
if kind == "mlp":
    x = torch.randn(n, 784)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
else:
    x = torch.randn(n, 3, 16, 16)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10)
    )
y = torch.arange(n) % 10

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

kept = []
layers = [layer for layer in model if any(True for _ in layer.parameters())]
hooks = [layer.register_forward_hook(lambda _, i, o: kept.append(i[0].nbytes + o.nbytes)) for layer in layers]
nn.functional.cross_entropy(model(x), y).backward()
plain = peak()
for hook in hooks:
    hook.remove()
model.zero_grad(set_to_none=True)
grads = per_sample_gradients(model, None, (x, y), max_bytes=budget)
grads.norms()
grads.dot(grads.combine(torch.full((n,), 1 / n)))
grads.squares()
linear = peak()
grads.gram()
print(json.dumps({
    "layers": len(layers),
    "factors": sum(kept),
    "linear": linear - plain,
    "gram": peak() - plain,
    "matrix": n * sum(p.numel() for p in model.parameters()) * 4,
}))
"""


@pytest.mark.parametrize("kind", ["mlp", pytest.param("conv", marks=pytest.mark.slow)])
def test_the_engine_stays_under_its_budget_at_4096_samples(kind):
    """Over a plain step: each layer's factors twice (as captured, and cleaned of values that are not finite), the budget
    and a Gram matrix for each layer; never samples × parameters, nor the unfolded pictures of a convolution."""
    budget, slack, gram = 16 << 20, 48 << 20, 4096 * 4096 * 4
    done = subprocess.run([sys.executable, "-c", ENGINE, kind, str(budget)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["linear"] < 2 * found["factors"] + budget + slack
    assert found["gram"] < 2 * found["factors"] + budget + slack + (3 + found["layers"]) * gram
    if kind == "mlp":
        assert found["gram"] < found["matrix"] / 5
    else:
        unfolded = 4096 * (3 + 8) * 9 * 256 * 4
        assert found["linear"] < unfolded


@pytest.mark.slow
def test_a_stream_of_a_million_samples_runs_with_flat_memory(tmp_path):
    count = 1_000_000
    inputs = torch.randint(0, 256, (count, 1, 6, 6), dtype=torch.uint8)
    targets = torch.arange(count) % 4
    stream = streams.from_tensors(
        inputs, targets, test=(inputs[:100], targets[:100]), classes_per_task=4, scenario="domain"
    )
    config = make_config(
        "rotated-digits", "ocs", overrides={"batch_size": 500, "sweeps": 1, "width": 16, "warm_start": 10}
    )
    settings = run_settings(config)
    learner = learners.build("ocs", models.for_stream(stream, settings, seed=0), settings, stream=stream)
    run = Run(config, tmp_path, stream, stream, learner, settings)
    peaks = []
    while not run.finished:
        run.step()
        if run.position.step % 200 == 0:
            run.save()
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    assert run.position.step == 2000
    assert peaks[-1] - peaks[0] < 20 << 20
