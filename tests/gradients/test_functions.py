"""Parameters that a model uses by itself, as the models of other libraries do: exact, and without a backward pass a sample."""

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from corestream import per_sample_gradients


class Free(nn.Module):
    """A weight, a gain and a shift that are no layer's, used as a function says."""

    def __init__(self, use):
        super().__init__()
        self.first, self.head, self.use = nn.Linear(4, 6), nn.Linear(6, 3), use
        self.weight, self.gain = nn.Parameter(torch.randn(6, 6) / 2), nn.Parameter(torch.randn(6))
        self.shift, self.heat = nn.Parameter(torch.randn(6)), nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        return self.head(self.use(self, self.first(x)).tanh().flatten(1, -2).mean(1))


def all_of(m, h):
    """So that no parameter is left unused."""
    return (h @ m.weight * m.gain + m.shift) * m.heat


USES = {
    "a product from the right, as GPT-2's layers": lambda m, h: torch.addmm(
        m.shift, h.flatten(0, 1), m.weight
    ).view(h.shape),
    "a transposed product": lambda m, h: h @ m.weight.T,
    "a linear function": lambda m, h: F.linear(h, m.weight, m.shift),
    "of a transposed weight": lambda m, h: F.linear(h, m.weight.t()),
    "twice the same weight": lambda m, h: torch.matmul(h @ m.weight, m.weight),
    "a gain, as a norm's by hand": lambda m, h: m.gain * (h * h.pow(2).mean(-1, keepdim=True).rsqrt()),
    "one more than a gain": lambda m, h: h * (1.0 + m.gain.double().to(h.dtype)),
    "a gain in three ways": lambda m, h: h * m.gain + h.relu() * (m.gain * m.gain) - (2 - m.gain) * h,
    "a shift": lambda m, h: m.shift + h,
    "a shift taken away": lambda m, h: h - m.shift.view(1, 1, -1),
    "a shift in place": lambda m, h: h.clone().add_(m.shift),
    "a choice between a shift and a number": lambda m, h: h + torch.where(h.detach() > 0, m.shift, 0.5),
    "the other choice": lambda m, h: 2 * h + torch.where(h.detach() > 0, torch.zeros(6).to(h), m.shift),
    "a shift with holes": lambda m, h: h + m.shift.masked_fill(h.detach() > 0, 0.25),
    "a number": lambda m, h: h * m.heat.exp(),
    "a layer norm": lambda m, h: F.layer_norm(h, (6,), m.gain, m.shift),
    "an RMS norm": lambda m, h: F.rms_norm(h, (6,), m.gain),
    "a group norm": lambda m, h: F.group_norm(h.mT, 3, m.gain, bias=m.shift).mT,
    "a batch norm by constants": lambda m, h: (
        F.batch_norm(h.mT, torch.zeros(6).to(h), torch.ones(6).to(h), m.gain, m.shift).mT
    ),
    "a convolution": lambda m, h: F.conv1d(h.mT, m.weight.unsqueeze(-1), m.shift).mT,
    "a product from the left": lambda m, h: (m.weight @ h.mT).mT,
    "a transposed product from the left": lambda m, h: (m.weight.T @ h.mT).mT,
    "a bias made of others": lambda m, h: F.linear(h, m.weight, torch.cat([m.gain[:3], m.shift[3:]])),
    "a weight made of others": lambda m, h: F.linear(h, F.normalize(m.weight, dim=1) * m.gain[:, None]),
    "rows of a table": lambda m, h: h + m.weight[torch.tensor([0, 5, 2, 2, 1])],
    "divided by a gain": lambda m, h: h / m.gain,
    "divided by a number, and one more": lambda m, h: torch.div(h, 1 + m.heat) + torch.true_divide(h, m.heat),
    "a gain divided by what comes in": lambda m, h: m.gain / (2 + h.tanh()),
    "times a gain and divided by it": lambda m, h: h * (1 + m.gain) + (h / (3 + m.gain)),
    "an activation that learns": lambda m, h: F.prelu(h, m.heat.view(1)) + F.prelu(h.mT, m.gain).mT,
    "a sum over letters": lambda m, h: torch.einsum("ntd,de->nte", h, m.weight),
    "with the weight first": lambda m, h: torch.einsum("ed, ntd -> nte", m.weight, h),
    "with dots": lambda m, h: torch.einsum("...d,ed->...e", h, m.weight),
    "with a weight that has many dimensions": lambda m, h: torch.einsum(
        "nthd,dhef->ntef", h.unflatten(-1, (3, 2)), m.weight.view(2, 3, 3, 2)
    ).flatten(-2),
    "with heads": lambda m, h: torch.einsum(
        "nthd,hde->nthe", h.unflatten(-1, (3, 2)), m.weight.view(9, 4)[:3].view(3, 2, 2)
    ).flatten(-2),
    "with heads that are not there yet": lambda m, h: (
        torch.einsum("ntd,hed->nhte", h, m.weight.view(2, 3, 6)).transpose(1, 2).flatten(-2)
    ),
    "with heads that are joined": lambda m, h: torch.einsum(
        "nthe,hed->ntd", h.unflatten(-1, (2, 3)), m.weight.view(2, 3, 6)
    ),
    "with positions in another order": lambda m, h: torch.einsum(
        "nstd,de->ntse", h.unsqueeze(1).expand(-1, 5, -1, -1) * torch.arange(25).view(5, 5, 1).to(h), m.weight
    ).flatten(1, 2),
    "where samples come second": lambda m, h: torch.einsum(
        "tnd,de->tne", h.transpose(0, 1), m.weight
    ).transpose(0, 1),
    "a gain by letters": lambda m, h: torch.einsum("ntd,d->ntd", h, m.gain),
    "a length by letters": lambda m, h: h + torch.einsum("ntd,d->nt", h, m.gain).unsqueeze(-1),
    "a weight of others by letters": lambda m, h: torch.einsum("ntd,de->nte", h, m.weight * m.gain),
    "all": all_of,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("count", [4, 5, 1])  # 5 is also the number of positions
def test_a_parameter_outside_of_layers_is_exact_without_a_pass_a_sample(check, images, use, count):
    model = Free(USES[use])
    grads = check(model, images(count, 5, 4))
    if (use, count) != ("rows of a table", 5):  # as many as samples: at first they could be theirs
        assert not grads.coupled
        assert count == 1 or not grads.general


@pytest.mark.parametrize(
    "use",
    [
        lambda m, h: h.clone().div_(m.gain),
        lambda m, h: torch.cat([torch.einsum("ntd,de->nte", h, m.weight[:, :0]), h], -1),
        lambda m, h: h.clone().mul_(m.gain),
        lambda m, h: torch.einsum("ntd,de->nte", [h, m.weight]),
        lambda m, h: torch.einsum("ntd,de", h, m.weight).movedim(0, 2),  # its letters in order: e, n, t
        lambda m, h: torch.einsum("ntd,ee->ntd", h, m.weight),
        lambda m, h: torch.einsum("tnd,de->nte", h.transpose(0, 1), m.weight),
        lambda m, h: torch.einsum("ntd,de,e->nte", h, m.weight, m.gain),
        lambda m, h: h + torch.einsum("ntd,de->ne", h, m.weight).unsqueeze(1),
        lambda m, h: torch.div(h, m.gain, rounding_mode=None),
        lambda m, h: torch.maximum(h * m.gain, m.gain),
        lambda m, h: h * (1 + m.gain) + h.clone().div_(1 + m.gain),
        lambda m, h: torch.where(h > 0, h + m.shift, m.shift),
    ],
)
def test_a_use_that_is_not_known_takes_the_general_path(check, images, use):
    assert check(Free(use), images(4, 5, 4)).general


BAGS = {
    "means": {},
    "sums": {"mode": "sum"},
    "means without padding": {"padding_idx": 2},
    "sums without padding": {"mode": "sum", "padding_idx": -1},
}


class Bag(nn.Module):
    """Words, and a class of them."""

    def __init__(self, **options):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(7, 4, **options), nn.Linear(4, 3)

    def forward(self, x, weights=None):
        return self.head(self.bag(x, per_sample_weights=weights).tanh())


@pytest.fixture
def words():
    def draw(n, length=6, seed=0):
        x = torch.randint(7, (n, length), generator=torch.Generator().manual_seed(seed))
        x[0] = 2  # padding alone
        return x, torch.arange(n) % 3

    return draw


@pytest.mark.parametrize("options", BAGS.values(), ids=BAGS.keys())
@pytest.mark.parametrize("count", [4, 6, 1])  # 6 is also the number of words
def test_bags_of_words_need_no_pass_a_sample(check, words, options, count):
    grads = check(Bag(**options), words(count))
    assert count == 1 or not grads.general


@pytest.mark.parametrize(
    ("equation", "shape", "weight"),
    [
        ("nhd,hde->nhe", (1, 4), (3, 4, 5)),
        ("nhd,hde->nhe", (3, 4), (1, 4, 5)),
        ("nab,ab->n", (1, 2), (2, 1)),
        ("nab,abe->ne", (1, 2), (2, 1, 3)),
        ("nd,de->ne", (1,), (6, 5)),
        ("nd,de->ne", (6,), (1, 5)),
    ],
)
def test_an_einsum_that_repeats_what_has_size_one_is_exact(check, images, equation, shape, weight):
    class Repeated(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.head = nn.Parameter(torch.randn(weight)), nn.LazyLinear(3)

        def forward(self, x):
            return self.head(torch.einsum(equation, x, self.weight).reshape(len(x), -1).tanh())

    model, (x, y) = Repeated(), images(4, *shape)
    model(x)
    check(model, (x, y))


class Heads(nn.Module):
    """A parameter of three dimensions that no rule knows, on the inputs themselves, and usual layers behind it."""

    def __init__(self, mix, shape, width):
        super().__init__()
        self.weight, self.mix = nn.Parameter(torch.randn(*shape)), mix
        self.body = nn.Sequential(nn.Linear(width, 7), nn.Tanh(), nn.Linear(7, 3))

    def forward(self, x):
        return self.body(self.mix(x, self.weight).flatten(1))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 9])
@pytest.mark.parametrize(
    ("mix", "shape", "width"),
    [
        (lambda x, w: torch.einsum("nd,hde->nhe", x, w), (3, 4, 5), 15),
        (lambda x, w: torch.matmul(x, w).transpose(0, 1), (3, 4, 5), 15),
        (lambda x, w: torch.einsum("ni,ijk,nk->nj", x, w, x), (4, 6, 4), 6),
        (lambda x, w: torch.maximum(x[:, None, :], w).transpose(0, 1).transpose(0, 1), (1, 3, 4), 12),
        (lambda x, w: (x @ w).relu().mean(0), (3, 4, 5), 5),
    ],
    ids=["heads", "matmul", "bilinear", "maximum", "ensemble"],
)
def test_layers_behind_a_parameter_without_a_rule_keep_theirs(
    check, covered, images, count, mix, shape, width
):
    model = Heads(mix, shape, width)
    batch = images(count, 4)
    check(model, batch)
    assert per_sample_gradients(model, None, batch).general <= {"weight"}


def test_a_number_that_is_no_vector_may_be_the_slope(check, images):
    check(Free(lambda m, h: F.prelu(h, m.heat)), images(4, 5, 4))


def test_whole_numbers_may_divide_a_parameter(check, images):
    check(
        Free(lambda m, h: h + m.gain / (3 * h.detach().abs() + 1).long()),
        images(4, 5, 4),
        dtypes=(torch.float64,),
    )


def test_what_is_made_of_all_parameters_is_no_trouble_where_one_layer_has_no_rule(check, images):
    class Penalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = OwnGRU(4, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, x):
            length = sum(p.square().sum() for p in self.cells.parameters()).sqrt()
            return self.head(self.cells(x)[0].mean(1) / length)

    check(Penalised(), images(4, 5, 4))


def test_what_learned_slots_become_in_many_steps_is_walked_once(check, images):
    class Slots(nn.Module):
        def __init__(self):
            super().__init__()
            self.slots, self.cell = nn.Parameter(torch.randn(5, 6)), nn.LSTMCell(6, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            state = None
            for _ in range(30):
                state = self.cell(self.slots, state)
            return self.head((x @ state[0].T).softmax(-1) @ state[0])

    for count in (4, 5):  # as many as there are slots
        assert not check(Slots(), images(count, 6), dtypes=(torch.float64,)).coupled


def test_bags_of_a_large_table_are_never_written_out(words):
    model = Bag()
    model.bag = nn.EmbeddingBag(2**20, 4)
    per_sample_gradients(model, None, words(4), max_bytes=2**20).gram()


def test_other_bags_take_the_general_path(check, words):
    x, y = words(4)
    assert check(Bag(mode="max"), (x, y)).general
    assert check(Bag(scale_grad_by_freq=True), (x, y)).general
    assert check(Bag(mode="sum"), ((x, torch.rand(4, 6)), y)).general


def in_a_loop(m, h):
    total = torch.zeros_like(m.gain)
    for _ in range(3):
        total += m.gain.sin()
        h = h + total
    return h


def on_a_view(m, h):
    part = (h := h.clone())[..., :3]
    part += m.shift[:3]
    return h + torch.cat([part, part], -1)


def hooked(m, h):
    table = m.gain * 2
    table.register_hook(lambda gradient: gradient.clamp(-1e-2, 1e-2))
    return h * table + table


def changed_later(m, h):
    table = m.weight[:5].clone()
    h = h + table
    table[0] *= 2
    return h


def detached_later(m, h):
    table = 2 * m.gain
    h = h + table
    table.detach_()
    return h


AWKWARD = {
    "detached after it was used": detached_later,
    "made of parameters in a loop, in place": in_a_loop,
    "added to a part that is used with the whole": on_a_view,
    "changed after it was used": changed_later,
    "with a hook that is not linear": hooked,
    "complex": lambda m, h: (torch.complex(h, h.tanh()) + torch.complex(m.gain, m.shift)).abs(),
    "in the spectrum": lambda m, h: torch.fft.irfft(torch.fft.rfft(h) * m.gain[:4], 6),
    "a bias for each position": lambda m, h: F.linear(h[:, :5], m.weight, m.weight[:5]),
    "one bias for all": lambda m, h: F.linear(h, m.weight, m.heat.view(1)),
    "a weight without outputs": lambda m, h: h + F.linear(h, m.gain).unsqueeze(-1),
    "a bias as a row": lambda m, h: torch.addmm(m.shift[None], h.flatten(0, 1), m.weight).view_as(h),
    "the method where": lambda m, h: h.where(h > 0, m.shift),
    "a choice by numbers": lambda m, h: (
        h + torch.where((h > 0).to(torch.uint8), torch.zeros(6).to(h), m.shift)
    ),
    "a choice before a slope without end": lambda m, h: (
        torch.where(h > 0, h, torch.where(h.detach() > 0, m.shift, 1.0)).abs().sqrt()
    ),
    "repeated along itself": lambda m, h: h + m.shift[:3].repeat(len(h), 5, 2),
    "from the end": lambda m, h: h + m.weight[torch.arange(len(h)) - 3][:, None],
    "a mask by name": lambda m, h: F.scaled_dot_product_attention(
        query=h[:, None], key=h[:, None], value=h[:, None], attn_mask=m.weight[None, None, :5, :5]
    )[:, 0],
}


@pytest.mark.filterwarnings("ignore:where received a uint8 condition")
@pytest.mark.parametrize("use", AWKWARD)
def test_awkward_uses_are_exact_on_whatever_path(oracle, compare, images, use):
    model = Free(AWKWARD[use]).double()
    for count in (4, 5, 2, 4):
        batch = images(count, 5, 4, seed=count)[0].double(), torch.arange(count) % 3
        try:
            model(batch[0])
        except RuntimeError as error:
            pytest.skip(f"this torch takes no such call: {error}")
        compare(per_sample_gradients(model, None, batch), oracle(model, batch), 1e-9)


def test_losses_that_a_model_makes_itself_may_be_used_for_something_else(oracle, compare):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.randn(5))

        def forward(self, x):
            losses = (x / self.gain).square().sum(1)
            return losses, 2 * losses

    model, batch = Own().double(), (torch.randn(4, 5).double(), torch.arange(4))

    def first(outputs, targets):
        return outputs[0]

    compare(per_sample_gradients(model, first, batch), oracle(model, batch, first), 1e-10)


def test_one_odd_batch_or_use_does_not_change_what_is_known_of_a_table(oracle, compare):
    class Near(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.mix, self.head = nn.Embedding(9, 4), nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x):
            h = self.table(x)
            return self.head(self.mix(h).tanh()) - torch.cdist(h, self.table.weight)[:, :3]

    model = Near().double()
    for tokens in ([3, 1, 2, 5], [0, 1, 2], [0], [4, 4, 1, 8]):
        batch = torch.tensor(tokens), torch.arange(len(tokens)) % 3
        grads = per_sample_gradients(model, None, batch)
        compare(grads, oracle(model, batch), 1e-10)
        assert grads.general == {"table.weight"}


def test_embeddings_alone_show_that_samples_depend_on_each_other():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 3)

        def forward(self, x):
            h = self.table(x)
            return h - h.mean(0)

    assert per_sample_gradients(Centred(), None, (torch.tensor([3, 1, 2, 5]), torch.arange(4) % 3)).coupled


def test_what_is_made_of_parameters_counts_against_the_budget_too(images):
    model = Free(lambda m, h: F.linear(h, m.gain[:, None] * m.shift))
    batch = images(4, 5, 4)
    small, large = (
        per_sample_gradients(model, None, batch, parameters=["gain", "shift"], max_bytes=size)
        for size in (4 * 4 * 40, 4 * 4 * 48)
    )
    assert small.general == {"gain", "shift"}
    assert not large.general
    torch.testing.assert_close(small.gram(), large.gram())


def test_many_ways_from_a_parameter_are_counted_at_once(check, images):
    def use(m, h):
        gain = m.gain
        for _ in range(60):  # 2 ** 60 ways
            gain = gain - 0.1 * torch.logsumexp(gain, 0) * gain.detach()
            gain = gain + gain * 0.01
        return h * gain

    assert not check(Free(use), images(4, 5, 4)).general


class Vision(nn.Module):
    """A token for the class, positions, a gain on each branch, and attention that is a layer of torch."""

    def __init__(self, spread=None, in_place=False):
        super().__init__()
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 6, 8))
        self.patches, self.gain = nn.Linear(4, 8), nn.Parameter(torch.randn(8))
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)
        self.spread, self.in_place = spread or (lambda token, n: token.expand(n, -1, -1)), in_place

    def forward(self, x):
        h = torch.cat([self.spread(self.token, len(x)), self.patches(x)], 1)
        if self.in_place:
            h += self.positions
        else:
            h = h + self.positions
        return self.head((h + self.attention(h, h, h, need_weights=False)[0] * self.gain)[:, 0])


@pytest.mark.parametrize(
    "model", [Vision(), Vision(in_place=True), Vision(lambda token, n: token.repeat(n, 1, 1))]
)
def test_tokens_and_positions_of_a_vision_transformer_need_no_pass_a_sample(check, images, model):
    assert not check(model, images(4, 5, 4)).general


class Reader(nn.Module):
    """Words and positions, each looked up in a table."""

    def __init__(self, flat):
        super().__init__()
        self.words, self.positions = nn.Embedding(9, 6), nn.Embedding(16, 6)
        self.norm, self.head, self.flat = nn.LayerNorm(6), nn.Linear(6, 3), flat

    def forward(self, x):
        places = torch.arange(x.shape[1])
        places = self.positions(places if self.flat else places[None])
        return self.head(self.norm(self.words(x) + places).tanh().mean(1))


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("length", [3, 4, 7, 8])  # with 4 samples, some could be taken for them
def test_looked_up_positions_need_no_pass_a_sample(oracle, compare, flat, length):
    model, batch = Reader(flat).double(), (torch.randint(9, (4, length)), torch.arange(4) % 3)
    for number in range(3):
        grads = per_sample_gradients(model, None, batch)
        compare(grads, oracle(model, batch), 1e-10)
        # at first, as many positions as samples could be theirs
        assert not grads.general or (number == 0 and flat and length == 4)


class SequenceFirst(nn.Module):
    """A transformer that has its samples second, with positions that it learns."""

    def __init__(self, *, below):
        super().__init__()
        self.below = nn.Linear(4, 4) if below else nn.Identity()
        self.positions = nn.Parameter(torch.randn(9, 1, 4))
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.below(x.transpose(0, 1)) + self.positions[: x.shape[1]]
        return self.head(self.layer(x).mean(0))


@pytest.mark.parametrize("below", [True, False], ids=["on what is learned", "on inputs"])
@pytest.mark.parametrize("length", [3, 4, 5, 8])  # with 4 samples, some could be taken for them
def test_learned_positions_of_a_sequence_first_model_are_exact(check, images, length, below):
    grads = check(SequenceFirst(below=below), images(4, length, 4))
    assert not grads.coupled
    assert length % 4 == 0 or not grads.general


def test_as_many_rows_as_samples_are_taken_for_theirs_in_the_first_batch_alone(oracle, compare, images):
    model, batch = Free(USES["rows of a table"]).double(), (images(5, 5, 4)[0].double(), torch.arange(5) % 3)
    for expected in ({"weight"}, set(), set()):
        grads = per_sample_gradients(model, None, batch)
        compare(grads, oracle(model, batch), 1e-10)
        assert grads.general == expected


class Offset(nn.Embedding):
    """A table with a forward pass of its own."""

    def forward(self, x):
        return super().forward(x + 2)


def test_a_table_with_a_forward_of_its_own_is_looked_up_sample_by_sample(check):
    model = nn.Sequential(Offset(9, 4, padding_idx=3), nn.Flatten(), nn.Linear(20, 3))
    assert not check(model, (torch.randint(7, (4, 5)), torch.arange(4) % 3)).general


class Numbered(nn.Embedding):
    """Positions that each sample has of its own, in square brackets."""

    def forward(self, x):
        return self.weight[torch.arange(x.shape[1]).repeat(len(x), 1)] + self.weight[x]


def test_one_row_for_each_sample_is_looked_up_in_square_brackets(check):
    class Conditioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.kinds, self.mix, self.head = (
                nn.Parameter(torch.randn(5, 4)),
                nn.Linear(4, 6),
                nn.Linear(6, 3),
            )

        def forward(self, x, kind):
            return self.head(self.mix(self.kinds[kind]).tanh() + self.mix(x))

    batch = (torch.randn(4, 4), torch.tensor([2, 0, 2, 4])), torch.arange(4) % 3
    assert not check(Conditioned(), batch).general


def test_rows_in_square_brackets_are_looked_up_sample_by_sample(check):
    model = nn.Sequential(Numbered(9, 4), nn.Flatten(), nn.Linear(20, 3))
    assert not check(model, (torch.randint(9, (4, 5)), torch.arange(4) % 3)).general


class Windowed(nn.Module):
    """A table of what lies how far from what, added to the attention, as Swin's."""

    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.head = nn.Parameter(torch.randn(9, 2)), nn.Linear(8, 24), nn.Linear(8, 3)
        self.register_buffer("index", torch.randint(9, (5, 5)))

    def forward(self, x):
        q, k, v = self.qkv(x).view(len(x), 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        table = self.table[self.index.view(-1)].view(5, 5, 2).permute(2, 0, 1).contiguous().unsqueeze(0)
        mixed = (q @ k.mT + table).softmax(-1) @ v
        return self.head(mixed.transpose(1, 2).flatten(2).mean(1))


@pytest.mark.parametrize("count", [4, 5, 2])  # windows of 5, 2 heads
def test_a_table_of_distances_needs_no_pass_a_sample(check, images, count):
    assert not check(Windowed(), images(count, 5, 8)).general


class Distant(nn.Module):
    """A layer's table of what lies how far from what, as T5's."""

    def __init__(self):
        super().__init__()
        self.table, self.qk, self.head = nn.Embedding(9, 2), nn.Linear(8, 16), nn.Linear(8, 3)

    def forward(self, x):
        q, k = self.qk(x).unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
        places = torch.arange(x.shape[1])
        bias = self.table((places[:, None] - places).abs()).permute(2, 0, 1).unsqueeze(0)
        mixed = (q @ k.mT + bias).softmax(-1) @ x.unflatten(-1, (2, 4)).transpose(1, 2)
        return self.head(mixed.transpose(1, 2).flatten(2).tanh().mean(1))


@pytest.mark.parametrize("length", [4, 5, 8])  # with 4 samples, some could be taken for them
def test_a_layers_table_that_all_samples_share_is_no_sign_that_they_depend_on_each_other(
    oracle, compare, images, length
):
    model, batch = Distant().double(), (images(4, length, 8)[0].double(), torch.arange(4) % 3)
    for number in range(3):
        grads = per_sample_gradients(model, None, batch)
        compare(grads, oracle(model, batch), 1e-10)
        assert number == 0 or not grads.general
        assert not grads.coupled or (number == 0 and length == 4)  # as many as samples: they could be theirs


def test_learned_queries_are_no_sign_that_samples_depend_on_each_other(check, images):
    class Queries(nn.Module):
        def __init__(self):
            super().__init__()
            self.queries, self.key, self.value = (
                nn.Parameter(torch.randn(8, 6)),
                nn.Linear(6, 6),
                nn.Linear(6, 6),
            )
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            table = self.key(self.queries)  # eight rows, for four samples
            return self.head((self.value(x) @ table.T).softmax(-1) @ table)

    assert not check(Queries(), images(4, 6)).coupled


class OwnGRU(nn.GRU):
    """No rule knows what a forward pass of one's own does."""

    def forward(self, *args):
        return super().forward(*args)


def test_a_layer_without_a_rule_hides_no_dependence_behind_it(images):
    """Its input needs no gradient, so that its output looks as if made of parameters alone."""

    class Compared(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.mix, self.head = OwnGRU(4, 6, batch_first=True), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            h = self.mix(self.cells(x)[0][:, -1])
            return self.head(h - h.mean(0))

    grads = per_sample_gradients(Compared(), None, images(4, 5, 4))
    assert grads.coupled
    assert not any(name.startswith("head") for name in grads.general)


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("length", [4, 5])
def test_a_table_of_distances_may_be_the_mask_of_an_attention(oracle, compare, images, length, by_name):
    class Masked(Distant):
        def forward(self, x):
            q, k = self.qk(x).unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
            places = torch.arange(x.shape[1])
            bias = self.table((places[:, None] - places).abs()).permute(2, 0, 1).unsqueeze(0)
            v = x.unflatten(-1, (2, 4)).transpose(1, 2)
            attend = F.scaled_dot_product_attention
            mixed = attend(q, k, v, attn_mask=bias) if by_name else attend(q, k, v, bias)
            return self.head(mixed.transpose(1, 2).flatten(2).tanh().mean(1))

    model, batch = Masked().double(), (images(4, length, 8)[0].double(), torch.arange(4) % 3)
    for number in range(2):
        grads = per_sample_gradients(model, None, batch)
        compare(grads, oracle(model, batch), 1e-10)
        assert number == 0 or not grads.general


def test_single_precision_inside_of_a_double_model_is_no_sign_of_anything(images):
    class Norm(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(width))

        def forward(self, x):
            wide = x.float()
            return self.weight * (wide * wide.pow(2).mean(-1, keepdim=True).rsqrt()).to(x.dtype)

    model = nn.Sequential(nn.Linear(4, 8), Norm(8), nn.Linear(8, 8), Norm(8), nn.Linear(8, 3)).double()
    grads = per_sample_gradients(model, None, (images(6, 4)[0].double(), torch.arange(6) % 3))
    assert not grads.general
    assert not grads.coupled


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_a_weight_that_a_hook_makes_needs_no_pass_a_sample(oracle, compare, images, norm):
    model = nn.Sequential(norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 3)).double().eval()
    batch = images(5, 4)[0].double(), torch.arange(5) % 3
    grads = per_sample_gradients(model, None, batch)
    compare(grads, oracle(model, batch), 1e-10)
    assert not grads.general


@pytest.mark.parametrize(
    "norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm]
)
def test_a_normalised_weight_needs_no_pass_a_sample(oracle, compare, images, norm):
    model = nn.Sequential(norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 3)).double().eval()
    batch = images(5, 4)[0].double(), torch.arange(5) % 3
    grads = per_sample_gradients(model, None, batch)
    compare(grads, oracle(model, batch), 1e-10)
    assert not grads.general


def test_a_function_of_a_layers_own_parameters_is_seen_from_the_second_batch_on(check, images):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.encode(F.linear(self.encode(x), self.encode.weight.T)))

    model, batch = Tied(), images(4, 4)
    first = per_sample_gradients(model, None, batch)
    again = per_sample_gradients(model, None, batch)
    assert first.general
    assert not again.general
    torch.testing.assert_close(first.gram(), again.gram())


def test_rows_over_the_budget_are_an_error_that_names_the_parameter():
    model = Free(lambda m, h: h * m.gain + m.shift)
    with pytest.raises(MemoryError, match="gain, shift need 192 bytes"):
        per_sample_gradients(
            model,
            None,
            (torch.randn(4, 5, 4), torch.arange(4) % 3),
            parameters=["gain", "shift"],
            max_bytes=191,
        )


def test_checkpoints_and_autocast_do_not_matter(oracle, compare, images):
    class Saving(Vision):
        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=False)

    model, batch = Saving().double(), (images(4, 5, 4)[0].double(), torch.arange(4) % 3)
    grads = per_sample_gradients(model, None, batch)
    compare(grads, oracle(model, batch), 1e-10)
    assert not grads.general
    model, batch = model.float(), (batch[0].float(), batch[1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compare(per_sample_gradients(model, None, batch), oracle(model, batch), 5e-2)
