"""Whether samples have the same losses without the others: what gradients do not tell."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corestream import score
from corestream.gradients.independence import Looks, stands_alone


class Standardised(nn.Module):
    """Its inputs are made to have mean 0 and variance 1 over the batch, before any layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers((x - x.mean(0)) / (x.std(0) + 1e-5))


def test_layers_that_go_row_by_row_are_not_looked_at(monkeypatch):
    """With the default loss; one of one's own may do anything."""
    looked_at = []
    forward = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda layer, x: (looked_at.append(x), forward(layer, x))[1])
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    batch = torch.randn(5, 2, 3), torch.tensor([0, 1, 2, 0, 1])
    assert stands_alone(model, None, *batch)
    assert not looked_at
    assert stands_alone(model, lambda *both: F.cross_entropy(*both, reduction="none"), *batch)
    assert looked_at


@pytest.mark.parametrize(
    "mixing",
    [
        lambda: nn.Sequential(nn.Linear(6, 3), nn.Softmax(0)),
        lambda: nn.Sequential(nn.Flatten(0, 0), nn.Linear(6, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        lambda: _with_a_hook(nn.Sequential(nn.Linear(6, 3)), lambda module, args, out: out - out.mean(0)),
    ],
)  # fmt: skip
def test_layers_that_may_mix_samples_are_looked_at(mixing):
    assert not stands_alone(mixing(), None, torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1]))


def _with_a_hook(model, hook):
    model.register_forward_hook(hook)
    return model


class OwnLSTM(nn.LSTM):
    """No rule knows what a forward pass of one's own does."""

    def forward(self, *args):
        return super().forward(*args)


class Recurrent(nn.Module):
    """Normalised by hand behind a layer that has no rule."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = OwnLSTM(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.lstm(x[None])[0][0]
        return self.head((hidden - hidden.mean(0)) / (hidden.std(0) + 1e-5))


class Rationed(nn.Module):
    """A share of the batch goes through the expert, and the others pass it by: how many depends on the size of the batch."""

    def __init__(self):
        super().__init__()
        self.expert, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        room = torch.arange(len(x), device=x.device)[:, None] < len(x) // 3
        return self.head(torch.where(room, self.expert(x), x))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        self.seen = self.seen + len(x)  # another tensor in the same place
        return self.head(x)


class Ticking(Counting):
    """Its buffer changes, but not by what the samples are."""

    def forward(self, x):
        self.seen += 1
        return self.head(x)


class Growing(nn.Module):
    """A table that is made longer where it must be; the model knows by itself how long it is."""

    def __init__(self):
        super().__init__()
        self.head, self.long = nn.Linear(6, 3), 2
        self.register_buffer("table", torch.ones(2, 1))

    def forward(self, x):
        if len(x) > self.long:
            self.long = len(x)
            self.register_buffer("table", torch.ones(self.long, 1))
        return self.head(x) * self.table[: len(x)]


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.is_ready = nn.Linear(6, 3), False
        self.register_buffer("scale", None)

    def forward(self, x):
        if not self.is_ready:
            self.scale, self.is_ready = torch.ones(3), True
        return self.head(x) * self.scale


class Adjacent(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("links", torch.eye(6).to_sparse())

    def forward(self, x):
        return self.head((self.links @ x.T).T)


class Chancy(nn.Module):
    """Drops a layer by a generator of its own."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.chance = torch.Generator().manual_seed(1)

    def forward(self, x):
        return self.head(x + self.body(x) * torch.rand((), generator=self.chance))


def net(*layers):
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 3))


def batch(n=10, seed=0):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=drawn) + seed, torch.randint(3, (n,), generator=drawn)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda: net(nn.ReLU()), True),
        (lambda: net(nn.LayerNorm(8), nn.Dropout(0.5)), True),
        (lambda: net(nn.BatchNorm1d(8)).eval(), True),
        (lambda: net(nn.BatchNorm1d(8)), False),
        (lambda: net(nn.SyncBatchNorm(8)).eval(), True),
        (Standardised, False),
        (lambda: Standardised().eval(), False),
        (Recurrent, False),
        (Rationed, False),
        (Counting, False),
        (Ticking, True),
        (Growing, True),
        (Lazy, True),
        (lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3)), True),
        (Adjacent, True),
        (Chancy, True),
        (lambda: torch.jit.script(net(nn.BatchNorm1d(8, track_running_stats=False))), False),
    ],
)
def test_dependence_is_seen_in_the_losses(model, expected):
    model = model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    drawn = torch.get_rng_state()
    assert stands_alone(model, None, *batch()) is expected
    assert torch.equal(drawn, torch.get_rng_state())
    for name, value in model.state_dict().items():
        if name in before and value.shape == before[name].shape and not value.is_sparse:  # a table may stay
            assert torch.equal(value, before[name])
    model(batch()[0])  # still whole


def test_a_bad_sample_makes_no_dependence():
    x, y = batch()
    x[2] = torch.nan
    assert stands_alone(net(nn.ReLU()), None, x, y)


def test_one_sample_stands_alone():
    assert stands_alone(net(nn.ReLU()), None, *batch(1))


def test_a_loss_may_make_samples_depend_on_each_other():
    def centred(outputs, targets):
        return F.cross_entropy(outputs - outputs.detach().mean(0), targets, reduction="none")

    model = net(nn.ReLU())
    assert stands_alone(model, None, *batch())
    assert not stands_alone(model, centred, *batch())


@pytest.mark.parametrize("model", [Standardised, Recurrent, Rationed])
def test_a_reference_has_no_part_in_the_scores_of_the_batch(model):
    torch.manual_seed(0)
    model = model().eval()
    alone, beside = score(model, None, batch()), score(model, None, batch(), batch(14, seed=1))
    torch.testing.assert_close(beside.similarity, alone.similarity)
    torch.testing.assert_close(beside.diversity, alone.diversity)


def test_a_loss_in_double_precision_of_a_model_in_single_and_one_that_is_nearly_zero():
    torch.manual_seed(0)
    model = net(nn.ReLU())

    def wide(outputs, targets):
        return F.cross_entropy(outputs.double(), targets, reduction="none")

    def nothing(outputs, targets):
        return (outputs - outputs.detach() * (1 + 1e-7)).square().sum(1)

    for n in (2, 5, 10, 20):
        for loss in (wide, nothing):
            assert stands_alone(net(nn.ReLU()), loss, *batch(n))
    assert stands_alone(model, None, *batch())


def test_an_answer_of_one_sample_is_none():
    model = Standardised().eval()
    assert stands_alone(model, None, *batch(1))
    assert not stands_alone(model, None, *batch(16))


class Trimmed(nn.Module):
    """Padding is cut off at the longest of the batch, and what is left of it counts."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, words):
        return self.head(torch.tanh(self.words(words[:, : (words != 0).sum(1).max()])).mean(1))


def lines(*lengths):
    words = torch.arange(1, 9).expand(len(lengths), 8)
    words = words * (torch.arange(8) < torch.tensor(lengths)[:, None])
    return words, torch.arange(len(lengths)) % 3


@pytest.mark.parametrize("lengths", [(8, 3, 4, 2), (3, 4, 2, 8)], ids=["first", "last"])
def test_the_longest_is_noticed_wherever_it_is(lengths):
    assert not stands_alone(Trimmed(), None, *lines(*lengths))


def test_what_a_first_batch_hides_is_seen_later():
    model, seen = Trimmed(), []
    for lengths in ((5, 5, 3, 4), (8, 3, 4, 2), (8, 3, 4, 2), (5, 5, 3, 4)):  # each half has one of 5
        seen.append(stands_alone(model, None, *lines(*lengths)))
    assert seen == [True, False, False, False]


def test_a_model_whose_samples_stand_alone_is_seldom_looked_at():
    model, calls = net(nn.ReLU()), []
    model.register_forward_hook(lambda *args: calls.append(1))
    for _ in range(100):
        assert stands_alone(model, None, *batch())
    assert len(calls) == 4 * 7  # at the first, second, fourth … sixty-fourth time


def test_a_half_of_one_sample_is_looked_at_among_copies():
    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(x).squeeze()  # one sample has no dimension of its own left

    for n in (2, 3):
        assert stands_alone(Squeezed(), None, *batch(n))
        assert not stands_alone(Standardised().eval(), None, *batch(n))


def among_present(outputs, targets):
    """Cross-entropy over the classes that the batch has."""
    absent = ~torch.isin(torch.arange(outputs.shape[1]), targets)
    return F.cross_entropy(outputs.masked_fill(absent, -torch.inf), targets, reduction="none")


def test_a_loss_over_the_classes_that_are_there_is_seen_however_they_lie():
    assert not stands_alone(net(nn.ReLU()), among_present, torch.randn(12, 6), torch.arange(12) % 2)


def test_new_classes_are_a_reason_to_look_again():
    model, x = net(nn.ReLU()), torch.randn(12, 6)
    for _ in range(20):
        assert stands_alone(model, among_present, x, torch.zeros(12, dtype=torch.long))
    assert not stands_alone(model, among_present, x, torch.arange(12) % 2)


def test_classes_are_a_reason_to_look_as_often_as_their_number_doubles():
    looks, cpu = Looks(), torch.device("cpu")
    due = [looks.is_due(torch.arange(start, start + 100), cpu) for start in range(0, 10_000, 100)]
    assert [place + 1 for place, is_due in enumerate(due) if is_due] == [1, 2, 4, 8, 16, 32, 64]


class Merging(nn.Linear):
    """Does more than set a flag when its mode changes, as adapters that merge their weights do."""

    switched = 0

    def train(self, mode=True):
        self.switched += 1
        return super().train(mode)


class AlwaysDropping(nn.Dropout):
    def train(self, mode=True):
        return super().train(True)


@pytest.mark.parametrize("part", [Merging(8, 8), AlwaysDropping(0.5)], ids=["merging", "always dropping"])
def test_a_look_does_not_switch_the_models_mode(part):
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), part, nn.Linear(8, 3))
    before = getattr(part, "switched", 0)
    assert stands_alone(model, None, *batch())
    assert getattr(part, "switched", 0) == before
    assert all(module.training for module in model.modules())


def test_a_loss_that_does_not_take_what_a_model_gives_in_eval_mode():
    class Twofold(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5)), nn.Linear(8, 3)

        def forward(self, x):
            z = self.body(x)
            return (self.head(z), z) if self.training else self.head(z)

    def loss(outputs, targets):
        logits, z = outputs
        return F.cross_entropy(logits, targets, reduction="none") + z.square().mean(1)

    assert stands_alone(Twofold(), loss, *batch())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_loss_that_depends_on_the_number_of_samples_is_seen(dropout):
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(dropout), nn.Linear(8, 3))

    def shared(outputs, targets):
        return F.cross_entropy(outputs, targets, reduction="none") / len(targets)

    assert not stands_alone(model, shared, *batch())
    assert stands_alone(model, None, *batch())
    assert model.training


def test_a_loss_that_counts_makes_samples_depend_on_each_other():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("met", torch.zeros(()))

        def forward(self, outputs, targets):
            self.met += len(targets)
            return F.cross_entropy(outputs, targets, reduction="none")

    assert not stands_alone(net(nn.ReLU()), Counting(), *batch())
