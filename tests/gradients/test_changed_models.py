"""Models whose layers are no longer, or not always, what they were made as."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.checkpoint import checkpoint

from corestream import NonFiniteError, per_sample_gradients, score
from corestream.gradients.graph import Graph


@pytest.fixture
def batch():
    return torch.randn(8, 6), torch.randint(3, (8,))


class Replaced(nn.Module):
    """Calls a layer with another weight than its own."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, x):
        return functional_call(self.net, {"weight": torch.tanh(self.net.weight)}, (x,))


def test_another_weight_for_the_time_of_a_call(check, batch):
    check(Replaced(), batch)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (nn.Conv2d, {"padding": (0, 0)}),
        (nn.Conv2d, {"padding": (2, 2), "dilation": (2, 2)}),
        (nn.Conv2d, {"padding": 2}),
        (nn.Conv2d, {"stride": 2, "dilation": 1}),
        (nn.ConvTranspose2d, {"padding": (0, 0), "dilation": (2, 2)}),
        (nn.ConvTranspose2d, {"stride": 2, "dilation": 1}),
    ],
)
def test_a_convolution_with_other_attributes_than_it_was_made_with(check, kind, changes):
    conv = kind(1, 2, 3, padding=1)
    vars(conv).update(changes)
    model = nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(18, 3))
    check(model, (torch.randn(8, 1, 7, 7), torch.randint(3, (8,))), dtypes=[torch.float64])


def test_a_convolution_with_a_weight_of_another_size(check):
    conv = nn.Conv2d(1, 2, 3, padding=1)
    conv.weight = nn.Parameter(torch.randn(2, 1, 5, 5))
    model = nn.Sequential(conv, nn.Flatten(), nn.Linear(50, 3))
    check(model, (torch.randn(8, 1, 7, 7), torch.arange(8) % 3), dtypes=[torch.float64])


def test_an_embedding_that_has_grown(check):
    embedding = nn.Embedding(4, 3)
    embedding.weight = nn.Parameter(torch.randn(9, 3))
    check(
        nn.Sequential(embedding, nn.Flatten(), nn.Linear(6, 3)),
        (torch.randint(9, (8, 2)), torch.arange(8) % 3),
    )


class Crossed(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, bias=bias, batch_first=True)

    def forward(self, x):
        query, context = x[:, :4], x[:, 4:]
        return self.head(self.attention(self.norm(query), context, context)[0].mean(1))


@pytest.mark.parametrize("bias", [True, False])
def test_parameters_that_lie_in_one_vector(check, bias):
    model = Crossed(bias)
    vector_to_parameters(parameters_to_vector(model.parameters()).detach().clone(), model.parameters())
    # not a copy, whose parameters would each have their own memory
    check(model, (torch.randn(8, 7, 8), torch.arange(8) % 3), dtypes=[torch.float32], copied=False)


class Experts(nn.Module):
    """One of two for each sample; the second may get none."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(2))
        self.threshold = 99.0

    def forward(self, x):
        out = x.new_zeros(len(x), 3)
        for chosen, expert in zip(
            (x[:, 0] < self.threshold, x[:, 0] >= self.threshold), self.experts, strict=True
        ):
            rows = chosen.nonzero()[:, 0]
            out = out.index_add(0, rows, expert(x[rows]))
        return out


def test_an_expert_that_no_sample_goes_to(check, batch):
    model = Experts()
    check(model, batch, dtypes=[torch.float32], copied=False)
    model.threshold = 0.0
    check(model, batch, dtypes=[torch.float32], copied=False)


class Centred(nn.Module):
    def __init__(self, centred):
        super().__init__()
        self.first, self.last, self.centred = nn.Linear(6, 5), nn.Linear(5, 3), centred

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(h - h.mean(0) if self.centred else h)


def test_a_model_that_begins_to_centre_its_batch(check, batch):
    model = Centred(False)
    check(model, batch, dtypes=[torch.float32], copied=False)
    model.centred = True
    check(model, batch, dtypes=[torch.float32], copied=False)


def test_samples_that_depend_on_each_other_are_told(batch):
    assert per_sample_gradients(Centred(True), None, batch).coupled
    assert not per_sample_gradients(Centred(False), None, batch).coupled
    assert not per_sample_gradients(Experts(), None, batch).coupled


def test_such_a_batch_is_scored_without_its_reference(batch, oracle):
    model, reference = Centred(True), (torch.randn(5, 6), torch.randint(3, (5,)))
    found = score(model, None, batch, reference)
    rows, others = (
        torch.cat([part.flatten(1) for part in oracle(model, part_of).values()], 1)
        for part_of in (batch, reference)
    )
    torch.testing.assert_close(found.similarity, nn.functional.cosine_similarity(rows, rows.mean(0)[None]))
    torch.testing.assert_close(found.affinity, nn.functional.cosine_similarity(rows, others.mean(0)[None]))


class TwiceCalled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(checkpoint(self.layer, x.clone().requires_grad_(), use_reentrant=True))[:, :3]


def test_a_reentrant_checkpoint_is_refused_where_its_layer_is_called_outside_too(batch):
    with pytest.raises(ValueError, match="use_reentrant=False"):
        per_sample_gradients(TwiceCalled(), None, batch)


class OwnLSTM(nn.LSTM):
    """No rule knows what a forward pass of one's own does."""

    def forward(self, *args):
        return super().forward(*args)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = OwnLSTM(2, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def test_an_input_that_is_not_finite_spoils_no_other_sample():
    model, x, y = Recurrent(), torch.randn(8, 5, 2), torch.randint(3, (8,))
    clean = per_sample_gradients(model, None, (x, y)).gram()
    x[5, 0, 1] = torch.inf
    grads = per_sample_gradients(model, None, (x, y))
    assert grads.finite.tolist() == [n != 5 for n in range(8)]
    others = torch.arange(8) != 5
    torch.testing.assert_close(grads.gram()[others][:, others], clean[others][:, others])


def test_inputs_that_are_infinite_on_purpose_are_left_alone():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = OwnLSTM(2, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x, mask):
            weights = torch.softmax(mask, 1)
            return self.head((self.lstm(x)[0] * weights[..., None]).sum(1))

    mask = torch.zeros(8, 5)
    mask[3:, 4] = -torch.inf
    grads = per_sample_gradients(Masked(), None, ((torch.randn(8, 5, 2), mask), torch.randint(3, (8,))))
    assert grads.finite.all()


def test_outputs_that_the_default_loss_cannot_take_are_named(batch):
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), None

    with pytest.raises(ValueError, match=r"got a tuple: .*give a loss_fn"):
        per_sample_gradients(Pair(6, 3), None, batch)


def test_nothing_finite_is_still_an_error(batch):
    with pytest.raises(NonFiniteError):
        score(Recurrent(), None, (torch.full((8, 5, 2), torch.nan), batch[1]))


class Mixing(nn.Module):
    """Samples that depend on each other only once `switch` is on."""

    def __init__(self, way):
        super().__init__()
        self.way, self.switch = way, 0.0
        self.gate = nn.Parameter(torch.zeros(()))
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        on, count = bool(self.switch), len(h)
        mixed = {
            "a parameter": lambda: h + self.gate * h.mean(0),
            "a number": lambda: h + self.switch * h.amax(0),
            "softmax": lambda: h + self.switch * h.softmax(0),
            "roll": lambda: h.roll(int(on), 0),
            "flip": lambda: h.flip(0 if on else 1),
            "a table": lambda: torch.eye(count).to(h).roll(int(on), 0) @ h,
            "likeness": lambda: h + (h @ h.T - 100 * (1 - 2 * self.switch)).relu() @ h,
        }[self.way]()
        return self.last(mixed)


@pytest.mark.parametrize("way", ["a parameter", "a number", "softmax", "roll", "flip", "a table", "likeness"])
def test_samples_that_begin_to_depend_on_each_other(check, batch, way):
    """What was found while they did not is no longer so."""
    model, batch = Mixing(way).double(), (batch[0].double(), batch[1])
    assert not check(model, batch, dtypes=[torch.float64], copied=False).coupled
    model.switch = 0.5
    with torch.no_grad():
        model.gate.fill_(0.5)
    assert check(model, batch, dtypes=[torch.float64], copied=False).coupled


def _pairwise(way):
    """How far each sample lies from each other one."""

    def distances(o):
        n = len(o)
        return {
            "cdist": lambda: torch.cdist(o, o),
            "cdist without products": lambda: torch.cdist(o, o, compute_mode="donot_use_mm_for_euclid_dist"),
            "broadcast": lambda: (o[:, None] - o[None]).square().sum(-1),
            "the larger one": lambda: torch.maximum(o[:, None], o[None]).sum(-1),
            "expanded": lambda: (o[:, None].expand(n, n, -1) - o.expand(n, n, -1)).square().sum(-1),
            "repeated": lambda: (o[:, None].repeat(1, n, 1) - o.repeat(n, 1, 1)).square().sum(-1),
            "cosine": lambda: torch.cosine_similarity(o[:, None], o[None], dim=-1),
        }[way]()

    def loss(o, targets):
        same = (targets[:, None] == targets).to(o) - torch.eye(len(o)).to(o)
        return nn.functional.cross_entropy(o, targets, reduction="none") + (distances(o) * same).sum(1)

    return loss


@pytest.mark.parametrize(
    "way",
    ["cdist", "cdist without products", "broadcast", "the larger one", "expanded", "repeated", "cosine"],
)
def test_a_loss_that_compares_samples_of_one_class_where_the_first_batch_has_none(check, way):
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 9)).double(), torch.randn(8, 6).double()
    options = {"loss_fn": _pairwise(way), "dtypes": [torch.float64], "copied": False}
    assert not check(model, (x, torch.arange(8)), **options).coupled
    assert check(model, (x, torch.arange(8) % 3), **options).coupled


@pytest.mark.parametrize("place", [0, 1])
def test_as_many_channels_as_samples_are_no_pairs(place):
    """A network's own layers must not be looked at anew in every step."""
    x = torch.rand(8, 3, 8, 8)
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
    ]
    model = (
        nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 8))
        if place
        else nn.Sequential(nn.Flatten(), nn.Linear(192, 8))
    )
    losses = nn.functional.cross_entropy(model(x), torch.arange(8), reduction="none")
    assert not Graph(losses).moves_samples(8)


def test_distances_to_prototypes_are_no_pairs():
    prototypes = nn.Parameter(torch.randn(8, 5))
    hidden = nn.Linear(6, 5)(torch.randn(8, 6))
    losses = nn.functional.cross_entropy(-torch.cdist(hidden, prototypes), torch.arange(8), reduction="none")
    assert not Graph(losses).moves_samples(8)
