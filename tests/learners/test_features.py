import pytest
import torch
from torch import nn

from corestream.learners.features import features, raw_inputs


def test_embed_is_used_where_it_exists(model, batch):
    x, _ = batch()
    assert torch.equal(features(model, (x, torch.zeros(12))), model.embed(x))


def test_else_the_input_of_the_last_linear_layer(batch):
    model, (x, _) = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), batch()
    assert torch.equal(features(model, x), model[:2](x))
    assert not model[2]._forward_pre_hooks


def test_a_model_without_either_is_told():
    with pytest.raises(ValueError, match="embed"):
        features(nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2))


def test_raw_inputs_are_flat():
    assert raw_inputs((torch.zeros(3, 1, 2, 2), torch.zeros(3))).shape == (3, 4)
