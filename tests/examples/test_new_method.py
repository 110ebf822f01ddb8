import runpy
import subprocess
import sys
from pathlib import Path

import torch

from corestream import learners, models
from corestream.learners import registry
from corestream.streams import from_tensors

EXAMPLE = Path(__file__).parents[2] / "examples" / "new_method.py"


def test_a_new_method_is_at_most_forty_lines():
    assert len(EXAMPLE.read_text().splitlines()) <= 40


def test_it_learns_three_tasks():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, check=True)
    shown = [line.split(": ") for line in done.stdout.splitlines()]
    assert [task for task, _ in shown] == ["task 0", "task 1", "task 2"]
    assert all(float(accuracy.rstrip("%")) > 50 for _, accuracy in shown)


def test_its_method_learns_a_stream_whose_tasks_have_heads_of_their_own(monkeypatch):
    monkeypatch.setattr(registry, "METHODS", dict(registry.METHODS))
    runpy.run_path(str(EXAMPLE), run_name="example")
    stream = from_tensors(torch.rand(80, 6), torch.arange(80) % 4, scenario="task")
    settings = learners.settings("hardest", "rotated-digits")
    learner = learners.build("hardest", models.for_stream(stream, settings, seed=0), settings, stream=stream)
    for task in stream:
        for x, y, task_id in task.train:
            learner.observe((x, task_id), y)
        learner.end_task()
    assert sorted(learner.memory.targets.unique().tolist()) == [0, 1, 2, 3]
