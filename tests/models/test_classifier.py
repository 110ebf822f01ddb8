import pytest
import torch
from torch.nn.functional import cross_entropy

from corestream.models import MLP

HEADS = [(0, 1), (2, 3), (4, 5)]


def model():
    torch.manual_seed(0)
    return MLP((1, 4, 4), 6, width=8, heads=HEADS)


def test_each_sample_is_predicted_among_its_own_tasks_classes():
    task = torch.tensor([0, 1, 2, 1])
    predicted = model()(torch.randn(4, 1, 4, 4), task).argmax(1)
    assert all(int(p) in HEADS[int(t)] for p, t in zip(predicted, task, strict=True))


def test_other_heads_receive_no_gradient():
    network = model()
    task = torch.ones(5, dtype=torch.long)
    cross_entropy(network(torch.randn(5, 1, 4, 4), task), torch.tensor([2, 3, 2, 3, 2])).backward()
    reached = network.head.weight.grad.abs().sum(1) > 0
    assert reached.tolist() == [False, False, True, True, False, False]


def test_masked_softmax_is_the_softmax_of_the_head_alone():
    network, x = model(), torch.randn(3, 1, 4, 4)
    full = network.head(network.embed(x))
    masked = network(x, torch.full((3,), 2)).softmax(1)
    assert torch.allclose(masked[:, 4:6], full[:, 4:6].softmax(1), atol=1e-6)


def test_a_target_outside_the_tasks_classes_is_an_infinite_loss():
    losses = cross_entropy(
        model()(torch.randn(2, 1, 4, 4), torch.tensor([0, 0])), torch.tensor([1, 4]), reduction="none"
    )
    assert losses.isfinite().tolist() == [True, False]


def test_a_multi_head_network_asks_for_the_task():
    with pytest.raises(ValueError, match=r"task is None.*3 heads"):
        model()(torch.randn(2, 1, 4, 4))


def test_a_head_outside_the_classes_is_refused():
    with pytest.raises(ValueError, match=r"heads\[1\] is \[6\]"):
        MLP((4,), 6, heads=[(0,), (6,)])


def test_a_single_head_network_takes_and_ignores_task_ids():
    network, x = MLP((4,), 3, width=8), torch.randn(2, 4)
    assert torch.equal(network(x, torch.tensor([0, 1])), network(x))
