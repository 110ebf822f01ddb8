import pytest
import torch
from torch import nn

from corestream.learners import StableSGD


def test_the_learning_rate_decays_with_each_task_down_to_the_floor():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    learner = StableSGD(model, optimizer, lr_decay=0.1, lr_floor=0.005)
    rates = []
    for _ in range(4):
        learner.observe(torch.randn(4, 2), torch.randint(2, (4,)))
        rates.append(optimizer.param_groups[0]["lr"])
        learner.end_task()
    assert rates == pytest.approx([0.1, 0.01, 0.005, 0.005])


def test_a_negative_floor_is_refused():
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="lr_floor"):
        StableSGD(model, torch.optim.SGD(model.parameters(), lr=0.1), lr_floor=-1.0)


def test_a_rate_below_the_floor_is_not_raised_to_it():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    rates = [0.1, 0.0, 0.001]
    groups = [{"params": part.parameters(), "lr": lr} for part, lr in zip(model, rates, strict=True)]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    StableSGD(model, optimizer, lr_decay=0.01, lr_floor=0.005).end_task()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.005, 0.0, 0.001])
