import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "without_tasks.py"
example = SimpleNamespace(**runpy.run_path(str(EXAMPLE)))


@pytest.fixture(scope="module")
def learned():
    """Shares of noise among the picks and accuracies, mean of two seeds."""
    return {
        name: torch.tensor([example.learn(make, seed, noise=0.6) for seed in (0, 1)]).mean(0)
        for name, make in example.LEARNERS.items()
    }


def test_noise_is_left_out_at_once_without_tasks(learned):
    share, accuracy = learned["OCS, task_free=True"]
    assert share < 0.15
    assert accuracy > learned["10 random samples of each batch"][1]


def test_noise_is_picked_until_a_task_ends(learned):
    """What the documentation warns of."""
    share, accuracy = learned["OCS, no task has ended"]
    assert share > 0.55
    assert accuracy < learned["10 random samples of each batch"][1]
