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
    assert raw_inputs(torch.tensor([4, 1, 2])).tolist() == [[4.0], [1.0], [2.0]]


class Heads(nn.Module):
    """One a task, or for each sample that of its own."""

    def __init__(self, mixed):
        super().__init__()
        self.body, self.heads = nn.Linear(4, 6), nn.ModuleList(nn.Linear(6, 2) for _ in range(2))
        self.mixed = mixed

    def forward(self, x, task):
        h = torch.tanh(self.body(x))
        if not self.mixed:
            return self.heads[int(task[0])](h)
        out = h.new_zeros(len(h), 2)
        for number, head in enumerate(self.heads):
            out[task == number] = head(h[task == number])
        return out


def test_of_several_heads_it_is_the_input_of_the_one_that_is_called(batch):
    model, (x, _) = Heads(mixed=False), batch()
    assert torch.equal(features(model, (x, torch.zeros(12).long())), torch.tanh(model.body(x)))


def test_a_head_that_gets_some_of_the_samples_tells_nothing_of_all(batch):
    with pytest.raises(ValueError, match="give it `embed"):
        features(Heads(mixed=True), (batch()[0], torch.arange(12) % 2))


def test_attention_whose_projection_is_registered_last_is_no_head():
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.attention = nn.Linear(4, 2), nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x):
            return self.head(input=self.attention(x, x, x)[0].mean(1))

    model, x = Attending().eval(), torch.randn(5, 3, 4)
    torch.testing.assert_close(features(model, x), model.attention(x, x, x)[0].mean(1))


def test_a_layer_called_embed_is_not_the_models_method():
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, words):
            return self.head(self.embed(words).mean(1))

    model, words = Text(), torch.randint(9, (5, 7))
    assert torch.equal(features(model, words), model.embed(words).mean(1))
