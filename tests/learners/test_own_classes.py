from dataclasses import replace

import pytest
import torch
from torch import nn

from corestream import learners, models, streams
from corestream.errors import ConfigError
from corestream.learners.own_classes import OwnClasses

TASKS = [(3, 0), (1, 4), (2,)]


def test_the_loss_is_that_of_a_softmax_over_the_tasks_own_classes():
    outputs, targets = torch.randn(7, 5), torch.tensor([0, 3, 1, 4, 2, 2, 1])
    expected = []
    for row, target in zip(outputs, targets.tolist(), strict=True):
        own = next(classes for classes in TASKS if target in classes)
        chance = row[list(own)].softmax(0)[own.index(target)]
        expected.append(-chance.log())
    torch.testing.assert_close(OwnClasses(TASKS)(outputs, targets), torch.stack(expected))


def test_other_tasks_classes_get_no_gradient():
    outputs = torch.randn(2, 5, requires_grad=True)
    OwnClasses(TASKS)(outputs, torch.tensor([0, 4])).sum().backward()
    assert (outputs.grad[0, [1, 2, 4]] == 0).all()
    assert (outputs.grad[1, [0, 2, 3]] == 0).all()
    assert (outputs.grad[0, [0, 3]] != 0).all()


def test_a_target_out_of_range_is_named():
    with pytest.raises(ValueError, match=r"targets\[1\] is 9, and the model's outputs allow 0 to 4"):
        OwnClasses(TASKS)(torch.randn(2, 5), torch.tensor([0, 9]))


@pytest.mark.parametrize("tasks", [[(0, 1, 2)], [(0, 1), (1, 2)]])
def test_tasks_without_classes_of_their_own_are_refused(tasks):
    with pytest.raises(ConfigError, match="two or more tasks, with classes of their own"):
        OwnClasses(tasks)


class Stream:
    num_tasks = 2

    def classes_of(self, task):
        return [(0, 1), (2, 3)][task]


@pytest.mark.parametrize("method", sorted({*learners.names()} - {"multitask"}))  # which has one task
def test_every_method_can_learn_with_it(method):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    settings = replace(learners.settings(method, "rotated-digits"), loss_over="task")
    learner = learners.build(method, model, settings, stream=Stream())
    before = model[2].bias.detach().clone()
    learner.start_sweep()
    for seed in range(3):
        torch.manual_seed(seed)
        learner.observe(torch.randn(50, 4), torch.randint(2, (50,)))
    assert torch.equal(model[2].bias[2:], before[2:])  # the classes of the second task
    assert not torch.equal(model[2].bias[:2], before[:2])


def test_it_is_for_one_output_layer_of_all_classes():
    stream = streams.benchmark("rotated-digits", tasks=2)
    settings = replace(learners.settings("finetune", stream.name), loss_over="task")
    with pytest.raises(ConfigError, match="classes of their own"):  # each task has all ten
        learners.build("finetune", models.for_stream(stream, settings, seed=0), settings, stream=stream)
    heads = models.MLP((4,), 4, heads=[(0, 1), (2, 3)])
    with pytest.raises(ConfigError, match="a multi-head network decides among those alone"):
        learners.build("finetune", heads, settings, stream=Stream())
