import pytest
import torch
from torch import nn


class Tokens(nn.Module):
    def __init__(self, entries=11, width=6, **options):
        super().__init__()
        self.embedding, self.head = nn.Embedding(entries, width, **options), nn.Linear(width, 3)

    def forward(self, tokens):
        x = torch.tanh(self.embedding(tokens))
        return self.head(x.flatten(1, -2).mean(1) if x.dim() > 2 else x)


@pytest.fixture
def tokens():
    def draw(*shape, entries=11, dtype=torch.long):
        index = torch.randint(0, entries, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
        return index, torch.arange(shape[0]) % 3

    return draw


@pytest.mark.parametrize("shape", [(4,), (4, 9), (4, 3, 2)])
def test_an_embedding_is_exact_over_any_leading_dimensions(check, tokens, shape):
    check(Tokens(), tokens(*shape))


@pytest.mark.parametrize(
    "options",
    [
        {"padding_idx": 3},
        {"padding_idx": -1},
        {"scale_grad_by_freq": True},
        {"max_norm": 1.0},
        {"sparse": True},
    ],
    ids=str,
)
def test_the_options_of_an_embedding_are_exact(check, tokens, options):
    model = Tokens(**options)
    index, targets = tokens(4, 9)
    index[:, :2] = model.embedding.padding_idx or 0
    check(model, (index, targets))


def test_indices_may_be_32_bit(check, tokens):
    check(Tokens(), tokens(4, 9, dtype=torch.int32))


@pytest.mark.parametrize(("entries", "positions"), [(3, 40), (200, 2)])
def test_both_forms_of_the_gram_matrix_are_exact(check, tokens, entries, positions):
    check(Tokens(entries), tokens(4, positions, entries=entries))


def test_an_embedding_called_twice_sums_both_calls(check, tokens):
    class Twice(Tokens):
        def forward(self, tokens):
            return super().forward(tokens) + super().forward(tokens.flip(1)[:, :4])

    check(Twice(), tokens(4, 9))


def test_a_frozen_embedding_is_left_out(check, tokens):
    model = Tokens()
    model.embedding.weight.requires_grad_(False)
    assert "embedding.weight" not in check(model, tokens(4, 9)).combine(torch.ones(4))


def test_an_embedding_takes_its_rule(covered, tokens):
    assert "embedding.weight" in covered(Tokens(), tokens(4, 9))


def test_an_embedding_works_in_chunks(check, tokens):
    check(Tokens(), tokens(5, 9), max_bytes=1)


def test_bfloat16_is_within_five_hundredths(check, tokens):
    check(Tokens(), tokens(4, 9), dtypes=(torch.bfloat16,))


def test_an_embedding_bag_takes_the_general_path(check, tokens):
    model = nn.Sequential(nn.EmbeddingBag(11, 6), nn.Tanh(), nn.Linear(6, 3))
    check(model, tokens(4, 9))
