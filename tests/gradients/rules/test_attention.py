import pytest
import torch
from torch import nn

WIDTH, HEADS = 8, 2


class Attending(nn.Module):
    """Self-attention, or attention of a query to another sequence, with a head on top."""

    def __init__(self, *, need_weights=False, average=True, cross=False, batch_first=True, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first, **options)
        self.head = nn.Linear(WIDTH, 3)
        self.need_weights, self.average, self.batch_first, self.cross = (
            need_weights,
            average,
            batch_first,
            cross,
        )
        self.key, self.value = nn.Linear(WIDTH, self.attention.kdim), nn.Linear(WIDTH, self.attention.vdim)

    def forward(self, x, memory=None, key_padding_mask=None, attn_mask=None):
        others = x if memory is None else memory
        if not self.batch_first:
            x, others = x.transpose(0, 1), others.transpose(0, 1)
        if self.cross == "apart":
            key, value = self.key(others), self.value(others)
        else:
            key = value = x if memory is None else others
        y, weights = self.attention(
            x, key, value, need_weights=self.need_weights, average_attn_weights=self.average,
            key_padding_mask=key_padding_mask, attn_mask=None if attn_mask is None else attn_mask[0],
        )  # fmt: skip
        y = torch.tanh(y).mean(1 if self.batch_first else 0)
        if self.need_weights:
            y = y + weights.flatten(1).square().sum(1, keepdim=True)
        return self.head(y)


@pytest.fixture
def sequences():
    def draw(n=3, length=4, other=5):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(n, length, WIDTH, generator=generator)
        memory = torch.randn(n, other, WIDTH, generator=generator)
        return x, memory, torch.arange(n) % 3

    return draw


OPTIONS = {
    "plain": {},
    "without bias": {"bias": False},
    "weights": {"need_weights": True},
    "weights of each head": {"need_weights": True, "average": False},
    "bias_kv": {"add_bias_kv": True},
    "zero attention": {"add_zero_attn": True},
    "dropout": {"dropout": 0.4},
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_self_attention_is_exact(check, sequences, options, batch_first, training):
    x, _, y = sequences()
    # a dropout mask is drawn alike only in one and the same dtype
    dtypes = (torch.float64,) if options.get("dropout") else (torch.float32,)
    check(Attending(batch_first=batch_first, **options).train(training), (x, y), dtypes=dtypes)


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cross": "apart"},
        {"cross": "apart", "kdim": 5, "vdim": 7},
        {"cross": "apart", "kdim": 5, "bias": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_to_another_sequence_is_exact(check, sequences, options, batch_first, need_weights):
    x, memory, y = sequences()
    model = Attending(batch_first=batch_first, need_weights=need_weights, **options)
    check(model, ((x, memory), y), dtypes=(torch.float64,))


def test_masks_are_obeyed(check, sequences):
    x, _, y = sequences()
    padding = torch.tensor([[False] * 4, [False, False, True, True], [False, False, False, True]])
    causal = torch.ones(4, 4).triu(1).bool()
    check(Attending(), ({"x": x, "key_padding_mask": padding}, y))
    check(Attending(), ({"x": x, "attn_mask": causal.expand(3, 4, 4)}, y))
    check(
        Attending(need_weights=True),
        ({"x": x, "key_padding_mask": padding, "attn_mask": causal.expand(3, 4, 4)}, y),
    )


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
def test_as_many_positions_as_samples_are_told_apart(check, sequences, batch_first):
    x, memory, y = sequences(n=4, length=4, other=4)
    check(Attending(batch_first=batch_first), (x, y))
    check(Attending(batch_first=batch_first, cross="apart", kdim=5), ((x, memory), y))


@pytest.mark.parametrize("frozen", ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"])
def test_a_frozen_part_of_an_attention_is_left_out(check, sequences, frozen):
    x, memory, y = sequences()
    for inputs in (x, (x, memory)):
        model = Attending()
        model.attention.get_parameter(frozen).requires_grad_(False)
        check(model, (inputs, y), dtypes=(torch.float64,))


def test_a_whole_frozen_attention_is_passed_through(check, sequences):
    x, _, y = sequences()
    model = Attending(cross="apart")
    model.attention.requires_grad_(False)
    check(model, (x, y))


@pytest.mark.parametrize("options", [{}, {"cross": "apart", "kdim": 5, "vdim": 7}], ids=str)
def test_the_projections_take_the_linear_rule(covered, sequences, options):
    x, memory, y = sequences()
    model = Attending(**options)
    expected = {name for name, _ in model.named_parameters() if name.startswith("attention")}
    assert expected <= covered(model, ((x, memory), y))


def test_bfloat16_is_within_five_hundredths(check, sequences):
    x, _, y = sequences()
    check(Attending(), (x, y), dtypes=(torch.bfloat16,))


def test_an_attention_works_in_chunks(check, sequences):
    x, memory, y = sequences()
    check(Attending(), ((x, memory), y), max_bytes=1)
