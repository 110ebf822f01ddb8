"""What two processes do with their parts of a batch, beside what one process does with the whole of it.

This file is also the program of each of the two: `test_several_processes.py RANK FOLDER`.
"""

import functools
import os
import re
import runpy
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

import corestream
from corestream import Samples

EXAMPLE = Path(__file__).parents[2] / "examples" / "several_processes.py"
example = SimpleNamespace(**runpy.run_path(str(EXAMPLE)))
NEW, OLD, STEPS = 12, 10, 3
SHARES = {  # how many of the new and of the old samples the first process has; the second has the others
    "halves": (6, 5),
    "unequal parts": (11, 3),
    "all that is remembered in one process": (4, OLD),
    "nothing remembered": (6, 0),
    "a gradient of zero": (7, 4),
    "a sample that is not finite": (5, 6),
}


def net_and_sgd():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(64, 5, bias=False)
    net = nn.Sequential(*layers).double()
    return net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.8)


def whole_batches(case):
    """New samples, old ones, and the places of those replayed, for each step."""
    generator = torch.Generator().manual_seed(1)

    def samples(count):
        x = torch.randn(count, 1, 6, 6, generator=generator, dtype=torch.float64)
        return Samples.of(x, torch.randint(5, (count,), generator=generator))

    for _ in range(STEPS):
        new, old = samples(NEW), samples(0 if case == "nothing remembered" else OLD)
        if case == "a gradient of zero":
            new.inputs[8] = 0  # to which no layer adds anything
        if case == "a sample that is not finite":
            new.inputs[2] = torch.nan
        yield new, old, torch.randperm(len(old), generator=generator)[:4]


def in_parts(case, rank, add_up):
    """What one of two processes does: its scores and picks in each step, and its parameters in the end."""
    net, sgd = net_and_sgd()
    steps = []
    for new, old, replayed in whole_batches(case):
        start, old_start = (share * rank for share in SHARES[case])
        end, old_end = (len(new), len(old)) if rank else SHARES[case]
        part, old_part = new[start:end], old[old_start:old_end]
        replayed = replayed[(replayed >= old_start) & (replayed < old_end)] - old_start
        both = Samples.join([part, old_part])
        grads = corestream.per_sample_gradients(net, None, (both.inputs, both.targets))
        scores = example.score(grads, len(part), add_up)
        picked = example.learn(net, sgd, part, old_part, replayed, add_up, rank, 2)
        steps.append({"scores": vars(scores), "picked": picked + start})
    return {"steps": steps, "parameters": nn.utils.parameters_to_vector(net.parameters()).detach()}


@functools.cache
def as_a_whole(case):
    """The same by `corestream.score` of whole batches, and by ordinary steps on its picks."""
    net, sgd = net_and_sgd()
    steps = []
    for new, old, replayed in whole_batches(case):
        reference = (old.inputs, old.targets) if len(old) else None
        scores = corestream.score(net, None, (new.inputs, new.targets), reference, tau=example.TAU)
        picked = scores.top(example.K)
        loss = nn.functional.cross_entropy(net(new.inputs[picked]), new.targets[picked])
        if len(old):
            again = nn.functional.cross_entropy(net(old.inputs[replayed]), old.targets[replayed])
            loss = loss + example.LAM * again
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        steps.append({"scores": vars(scores), "picked": picked})
    return {"steps": steps, "parameters": nn.utils.parameters_to_vector(net.parameters()).detach()}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    command, environment = [sys.executable, __file__], {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([*command, str(rank), folder], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.fixture(params=SHARES)
def runs(request, two_processes):
    """Of the two processes and of one."""
    return (*(results[request.param] for results in two_processes), as_a_whole(request.param))


def test_scores_are_those_of_the_whole_batch(runs):
    for first, second, whole in zip(*(run["steps"] for run in runs), strict=True):
        for name, expected in whole["scores"].items():
            found = torch.cat([first["scores"][name], second["scores"][name]])
            torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_the_best_of_the_whole_batch_are_picked(runs):
    for first, second, whole in zip(*(run["steps"] for run in runs), strict=True):
        assert (
            sorted([*first["picked"].tolist(), *second["picked"].tolist()])
            == whole["picked"].sort()[0].tolist()
        )


def test_replicas_stay_equal_to_the_bit(runs):
    first, second, _ = runs
    assert torch.equal(first["parameters"], second["parameters"])


def test_steps_are_those_of_one_process_on_the_same_picks(runs):
    first, _, whole = runs
    start = nn.utils.parameters_to_vector(net_and_sgd()[0].parameters())
    assert not torch.allclose(first["parameters"], start)
    torch.testing.assert_close(first["parameters"], whole["parameters"], rtol=1e-9, atol=1e-9)


def test_a_process_without_picks_follows_the_other(two_processes):
    first, second = (results["unequal parts"] for results in two_processes)
    assert 0 in [len(step["picked"]) for step in second["steps"]]
    assert torch.equal(first["parameters"], second["parameters"])


def one_process(new, old, add_up=lambda tensor: tensor):
    net, sgd = net_and_sgd()
    return example.learn(net, sgd, new, old, torch.arange(len(old)), add_up, 0, 1)


def test_one_process_alone_picks_as_well():
    new, old, _ = next(whole_batches("halves"))
    reference = (old.inputs, old.targets)
    scores = corestream.score(net_and_sgd()[0], None, (new.inputs, new.targets), reference, tau=example.TAU)
    assert one_process(new, old).tolist() == scores.top(example.K).tolist()


def test_a_batch_without_a_finite_sample_is_refused():
    new, old, _ = next(whole_batches("halves"))
    new.inputs[:] = torch.nan
    with pytest.raises(corestream.NonFiniteError):
        one_process(new, old)


def test_nothing_travels_but_sums_scores_and_counts():
    travelled = []

    def add_up(tensor):
        travelled.append(list(tensor.shape))
        return tensor

    new, old, _ = next(whole_batches("halves"))
    one_process(new, old, add_up)
    size = sum(p.numel() for p in net_and_sgd()[0].parameters())
    assert sorted(travelled) == sorted([[3, size], [], [1], [NEW], [], [size]])


def test_the_program_learns_three_tasks_and_leaves_out_most_noise():
    command = [sys.executable, EXAMPLE]
    for _ in range(2):  # on a busy machine the two have once lost each other
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    accuracy, noise = done.stdout.splitlines()
    assert [float(number) > 0.7 for number in accuracy.split()[1:]] == [True] * 3
    assert int(re.match(r"\d+", noise)[0]) < 40


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{folder}/meeting", rank=rank, world_size=2, timeout=timedelta(seconds=100)
    )
    torch.save({case: in_parts(case, rank, example.add_up) for case in SHARES}, f"{folder}/{rank}.pt")
    dist.barrier()  # nobody leaves while the other still needs its answer
    os._exit(0)  # gloo's own threads now and then abort a process that is ending


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
