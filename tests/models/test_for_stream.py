from types import SimpleNamespace

import pytest
import torch

from corestream.errors import ConfigError
from corestream.models import MLP, ResNet18, for_stream


def stream(scenario):
    return SimpleNamespace(
        scenario=scenario,
        input_shape=(3, 8, 8),
        num_classes=6,
        num_tasks=2,
        classes_of=lambda t: [(0, 1, 2), (3, 4, 5)][t],
    )


def settings(network="mlp"):
    return SimpleNamespace(network=network, width=4, dropout=0.1, form="paper", norm="group")


def test_the_task_scenario_gets_one_head_per_task_and_others_one_head():
    assert for_stream(stream("task"), settings()).head_mask.tolist() == [
        [True] * 3 + [False] * 3,
        [False] * 3 + [True] * 3,
    ]
    assert for_stream(stream("class"), settings()).head_mask is None


def test_the_settings_name_the_network_and_its_shape():
    assert isinstance(for_stream(stream("domain"), settings()), MLP)
    resnet = for_stream(stream("domain"), settings("resnet18"))
    assert isinstance(resnet, ResNet18)
    assert resnet.head.in_features == 32
    assert resnet.stage1[0].dropout.p == 0.1


def test_equal_seeds_give_equal_weights_and_leave_the_global_state_alone():
    state = torch.get_rng_state()
    first, second = (for_stream(stream("domain"), settings(), seed=3) for _ in range(2))
    assert torch.equal(first.head.weight, second.head.weight)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first.head.weight, for_stream(stream("domain"), settings(), seed=4).head.weight)


def test_an_unknown_network_is_named():
    with pytest.raises(ConfigError, match="network is 'vit'; allowed are mlp, resnet18"):
        for_stream(stream("domain"), settings("vit"))
