"""On a device without double precision everything is computed, and to the bit as on the processor.

This file is also the program that computes it: the device stays with the process that brought it.
"""

import copy
import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.utils.backend_registration
from torch import nn

import corestream
from corestream import OCS, ReplayMemory, learners, models, per_sample_gradients, score

RESERVOIRS = ("er-reservoir", "er-mir")  # they draw in another way, for lack of doubles


class Words(nn.Module):
    def __init__(self, reader):
        super().__init__()
        self.embedding, self.reader, self.output = nn.Embedding(20, 8), reader, nn.Linear(8, 4)

    def forward(self, x):
        read = self.reader(self.embedding(x))
        return self.output((read[0] if isinstance(read, tuple) else read)[:, -1])


class Own(nn.Module):
    """A parameter that no rule covers, and an einsum."""

    def __init__(self):
        super().__init__()
        self.weight, self.scale, self.output = (
            nn.Parameter(torch.randn(12, 6)),
            nn.Parameter(torch.randn(6)),
            nn.Linear(6, 4),
        )

    def forward(self, x):
        return self.output(torch.einsum("nd,dk->nk", x, self.weight) * torch.sin(self.scale))


def images():
    return torch.randn(6, 3, 8, 8)


def words():
    return torch.randint(20, (6, 5))


def convolutions(norm):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(144, 4)
    )


MODELS = {
    "convolutions": (lambda: convolutions(nn.GroupNorm(2, 4)), images),
    "batch norm": (lambda: convolutions(nn.BatchNorm2d(4)), images),
    "recurrent": (lambda: Words(nn.RNN(8, 8, batch_first=True)), words),
    "attention": (
        lambda: Words(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)),
        words,
    ),
    "own parameters": (Own, lambda: torch.randn(6, 12)),
}
METHODS = learners.names()
SHORTER = {"bilevel": {"capacity": 20}, "mc-sgd": {"path_steps": 5}, "mc-sgd+ocs": {"path_steps": 5}}


def gradients_on(device, name):
    """Inner products, scores, a combined gradient, and what OCS makes of the model."""
    torch.manual_seed(0)
    make, data = MODELS[name]
    model, x, y = make().to(device), data().to(device), torch.randint(4, (6,)).to(device)
    grads = per_sample_gradients(model, None, (x, y))
    scores = score(model, None, (x, y), reference=(x[:3], y[:3]), tau=1.0)
    found = [grads.gram(), grads.norms(), scores.total, *grads.combine(torch.ones(6, device=device)).values()]
    learner = OCS(model, torch.optim.Adam(model.parameters()), ReplayMemory(6), k=3)
    for _ in range(2):
        for _ in range(3):
            learner.observe(x, y)
        learner.end_task()
    return [*found, *model.parameters()]


def method_on(device, method):
    """The number of samples kept after two tasks, with a state saved and loaded between, and the model."""
    stream = corestream.benchmark("rotated-digits", tasks=2).to(device)
    settings = replace(learners.settings(method, stream.name), **SHORTER.get(method, {}))
    model = models.for_stream(stream, settings, seed=0).to(device)
    torch.manual_seed(1)
    learner = learners.build(method, model, settings, stream=stream)
    for task in stream:
        batches = list(task.train)[:6]
        for _ in range(2):
            learner.start_sweep()
            for x, y in batches:
                learner.observe(x, y)
        learner.end_task()
        learner.load_state_dict(copy.deepcopy(learner.state_dict()))
    kept = 0 if learner.memory is None else len(learner.memory)
    return [torch.tensor(kept), *model.parameters()]


def main():
    import single_precision

    torch.Generator = single_precision.Generator
    compared = {}
    with single_precision.Device():
        for compute, names in ((gradients_on, MODELS), (method_on, METHODS)):
            for name in names:
                here = [x.detach() for x in compute(torch.device("cpu"), name)]
                there = [x.detach().cpu() for x in compute(single_precision.DEVICE, name)]
                compared[name] = [float((a - b).abs().max()) for a, b in zip(here, there, strict=True)]
    print(json.dumps(compared))


@pytest.fixture(scope="module")
def differences():
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch takes no device written in Python")
    program = [sys.executable, __file__]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", [*MODELS, *(m for m in METHODS if m not in RESERVOIRS)])
def test_everything_is_as_on_the_processor(differences, name):
    assert max(differences[name]) == 0


@pytest.mark.parametrize("name", RESERVOIRS)
def test_a_reservoir_draws_other_samples_and_as_many(differences, name):
    kept, *model = differences[name]
    assert kept == 0
    assert max(model) > 0


if __name__ == "__main__":
    main()
