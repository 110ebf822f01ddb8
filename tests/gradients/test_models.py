"""Whole models against the oracle: everything a layer's rule alone does not show."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from corestream import per_sample_gradients


class Mlp(nn.Module):
    def __init__(self, *, dropout=0.0, inplace=False, width=6):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, width), nn.Linear(width, width), nn.Linear(width, 3)
        self.act, self.dropout = nn.LeakyReLU(inplace=inplace), nn.Dropout(dropout)

    def forward(self, x):
        return self.head(self.dropout(self.act(self.second(self.dropout(self.act(self.first(x)))))))


@pytest.fixture
def batch(images):
    return images(6, 5)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("inplace", [True, False])
def test_dropout_has_the_mask_of_the_one_forward(check, batch, inplace, training):
    check(Mlp(dropout=0.5, inplace=inplace, width=20).train(training), batch, dtypes=(torch.float64,))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.Hardtanh])
def test_an_activation_in_place_behind_a_layer_does_not_spoil_its_gradient(check, images, activation):
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3), activation(inplace=True), nn.GroupNorm(2, 4), activation(inplace=True),
        nn.Flatten(), nn.Linear(28, 5), activation(inplace=True), nn.Linear(5, 3),
    )  # fmt: skip
    check(model, images(4, 2, 9))


def test_a_layer_behind_an_activation_in_place_takes_its_rule(covered, images):
    """Its input was changed before the layer saw it, not after."""
    model = nn.Sequential(
        nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 6), nn.ELU(inplace=True), nn.Linear(6, 3)
    )
    assert covered(model, images(4, 5)) == {name for name, _ in model.named_parameters()}


class ChangedInPlace(nn.Module):
    """A layer over positions, whose output torch makes as a view, and something done with that in place."""

    def __init__(self, layer, change):
        super().__init__()
        self.layer, self.change, self.head = layer, change, nn.Linear(6, 3)

    def forward(self, x):
        h = self.layer(x)
        before = h + 1
        changed = self.change(h)
        return self.head((2 * before + (h if changed is None else changed)).mean(1))


def _put_zeros(h):
    h[:, :2] = 0


@pytest.mark.parametrize(
    "change",
    [torch.relu_, nn.SiLU(inplace=True), lambda h: h.add_(h.detach().sin()), lambda h: h.mul_(0.5), _put_zeros],
    ids=["relu_", "silu", "add_", "mul_", "part"],
)  # fmt: skip
@pytest.mark.parametrize(
    "layer",
    [lambda: nn.Linear(4, 6), lambda: nn.Linear(4, 6, bias=False), lambda: nn.LayerNorm(6),
     lambda: nn.Sequential(nn.Linear(4, 6), nn.InstanceNorm1d(5, affine=True))],
    ids=["linear", "without bias", "layer norm", "instance norm"],
)  # fmt: skip
def test_what_is_done_in_place_to_a_view_does_not_spoil_its_layers_gradient(
    check, covered, images, layer, change
):
    model = ChangedInPlace(layer(), change)
    batch = images(4, 5, 6 if isinstance(model.layer, nn.LayerNorm) else 4)
    check(model, batch)
    assert covered(model, batch) == {name for name, _ in model.named_parameters()}


def test_an_activation_in_place_inside_of_an_encoder_needs_no_pass_a_sample(check, covered, images):
    encoder = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, dropout=0, activation=torch.relu_)
    model = ChangedInPlace(encoder, lambda h: h.tanh_())
    check(model, images(4, 5, 6))
    assert covered(model, images(4, 5, 6)) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("names", [["first.weight"], ["second.bias", "head.weight"], ["first", "second"]])
def test_frozen_parameters_are_left_out(check, batch, names):
    model = Mlp()
    for name in names:
        for parameter, value in model.named_parameters():
            if parameter.startswith(name):
                value.requires_grad_(False)
    assert not any(n.startswith(tuple(names)) for n in check(model, batch).combine(torch.ones(6)))


def test_an_unused_head_has_zero_gradients(check, batch):
    model = Mlp()
    model.other = nn.Linear(6, 4)
    grads = check(model, batch)
    assert grads.unused == {"other.weight", "other.bias"}
    assert not grads.combine(torch.ones(6))["other.weight"].any()


def test_tied_linear_layers_appear_once_under_their_first_name(check, images):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))

    names = list(check(Tied(), images(4, 5)).combine(torch.ones(4)))
    assert names == ["a.weight", "a.bias", "b.bias", "head.weight", "head.bias"]
    check(Tied(), images(4, 3, 5), loss_fn=lambda outputs, y: outputs[:, 0].square().sum(1))


@pytest.mark.parametrize("max_bytes", [2**28, 1])
def test_an_embedding_tied_to_the_output_layer_is_exact(check, max_bytes):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.mix, self.head = (
                nn.Embedding(9, 5),
                nn.Linear(5, 5),
                nn.Linear(5, 9, bias=False),
            )
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(torch.tanh(self.mix(self.embedding(tokens)))).mean(1)

    tokens = torch.randint(0, 9, (4, 6))
    check(Tied(), (tokens, torch.arange(4)), max_bytes=max_bytes)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("max_bytes", [2**28, 1])
def test_a_large_table_that_several_layers_share_is_not_written_out_sample_by_sample(
    check, monkeypatch, max_bytes, tied
):
    class Translator(nn.Module):
        """Two embeddings and, where they are tied, the output layer have one weight."""

        def __init__(self):
            super().__init__()
            self.source, self.target, self.mix = nn.Embedding(700, 5), nn.Embedding(700, 5), nn.Linear(5, 5)
            self.head = nn.Linear(5, 700, bias=True)
            self.target.weight = self.source.weight
            if tied:
                self.head.weight = self.source.weight

        def forward(self, tokens, before):
            mixed = self.mix(self.source(tokens).mean(1, keepdim=True) + self.target(before))
            return self.head(torch.tanh(mixed)).mean(1)

    model = Translator()
    batch = (torch.randint(0, 700, (4, 6)), torch.randint(0, 700, (4, 3))), torch.arange(4)
    check(model, batch, max_bytes=max_bytes)
    monkeypatch.setattr("corestream.gradients.blocks.Lookup.rows", None)
    grads = per_sample_gradients(model, None, batch, max_bytes=max_bytes)
    grads.norms()
    assert grads[:2].gram(grads).shape == (2, 4)


@pytest.mark.parametrize("shape", [(5,), (3, 5)], ids=str)
def test_a_layer_called_twice_sums_both_calls(check, images, shape):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm, self.head = nn.Linear(5, 5), nn.LayerNorm(5), nn.Linear(5, 3)

        def forward(self, x):
            for _ in range(3):
                x = torch.tanh(self.norm(self.layer(x)))
            y = self.head(x)
            return y.mean(1) if y.dim() == 3 else y

    check(Twice(), images(4, *shape))


def test_a_convolution_called_on_two_sizes_sums_both_calls(check, images):
    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.head(sum(torch.tanh(self.conv(z)).mean((2, 3)) for z in (x, F.avg_pool2d(x, 2))))

    check(Pyramid(), images(4, 2, 8, 8))


def test_one_call_whose_output_is_thrown_away_counts_for_nothing(check, batch):
    class Wasteful(Mlp):
        def forward(self, x):
            self.first(x)
            return super().forward(x) + self.first(x).detach().sum()

    check(Wasteful(), batch)


def test_a_weight_also_used_functionally_is_exact(check, batch):
    class Both(Mlp):
        def forward(self, x):
            return super().forward(x) + F.linear(x, self.first.weight)[:, :3]

    class OnlyFunctionally(Mlp):
        def forward(self, x):
            return self.head(torch.relu(F.linear(x, self.first.weight, self.first.bias)))

    class Penalised(Mlp):
        def forward(self, x):
            return super().forward(x) * self.head.weight.norm()

    for model in (Both(), OnlyFunctionally(), Penalised()):
        check(model, batch)


@pytest.mark.parametrize(
    "normed",
    [
        nn.utils.weight_norm,
        parametrizations.weight_norm,
        nn.utils.spectral_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        lambda layer: prune.random_unstructured(layer, "weight", 0.5),
    ],
    ids=[
        "weight_norm",
        "parametrized weight_norm",
        "spectral_norm",
        "parametrized spectral_norm",
        "orthogonal",
        "pruned",
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_weight_made_from_others_is_exact(oracle, compare, batch, normed):
    model = nn.Sequential(
        nn.Linear(5, 6), nn.Tanh(), normed(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 3)
    ).double()
    inputs = (batch[0].double(), batch[1])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grads = per_sample_gradients(model, None, inputs)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    compare(grads, oracle(model, inputs), 1e-10)
    assert not grads.unused


def test_free_parameters_are_exact(check, batch):
    class Free(Mlp):
        def __init__(self):
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.tensor(1.3)), nn.Parameter(torch.randn(5))
            self.table = nn.Parameter(torch.randn(3, 3))

        def forward(self, x):
            return super().forward(x * self.scale + self.shift) @ self.table

    check(Free(), batch)


def test_layers_without_a_rule_are_exact(check, batch):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.pair = nn.PReLU(5), nn.Bilinear(5, 5, 3)

        def forward(self, x):
            return self.pair(self.act(x), x)

    check(Odd(), batch)


def test_a_subclass_with_its_own_forward_is_exact(check, batch):
    class Doubled(nn.Linear):
        def forward(self, x):
            return super().forward(2 * x) ** 2

    check(nn.Sequential(Doubled(5, 6), nn.Tanh(), nn.Linear(6, 3)), batch)


def test_a_subclass_that_only_begins_in_another_way_has_the_rule(check, batch):
    class Small(nn.Linear):
        """Its first weights are smaller."""

        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.scale = 0.5

        def reset_parameters(self):
            nn.init.normal_(self.weight, std=0.1)
            nn.init.zeros_(self.bias)

        def how_small(self):
            return self.scale

    model = nn.Sequential(Small(5, 6), nn.Tanh(), nn.Linear(6, 3))
    check(model, batch)
    assert not per_sample_gradients(model, None, (batch[0].float(), batch[1])).general


def test_a_mixin_that_changes_nothing_leaves_the_rule(batch):
    class Tagged:
        tag = "tagged"

    class Linear(Tagged, nn.Linear):
        pass

    assert not per_sample_gradients(nn.Sequential(Linear(5, 3)), None, (batch[0].float(), batch[1])).general


class Halved(nn.Conv1d):
    """Changes what its forward calls."""

    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, weight / 2, bias)


class Called(nn.Conv1d):
    def __call__(self, x):
        return super().__call__(x) * x.mean((1, 2), keepdim=True)


class Doubling(nn.Module):
    def __getattr__(self, name):
        found = super().__getattr__(name)
        return 2 * found if name == "weight" else found


class Mixed(nn.Conv1d, Doubling):
    """What changes it stands behind the layer that has the rule."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        nn.init.normal_(self._parameters["weight"])  # usually done by way of what is doubled


class Replaced(nn.Conv1d):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self._conv_forward = lambda x, weight, bias: F.conv1d(x, weight / 2, bias)


@pytest.mark.parametrize("kind", [Halved, Called, Mixed, Replaced])
def test_a_subclass_that_computes_something_else_is_exact(check, images, kind):
    check(nn.Sequential(kind(2, 3, 2), nn.Flatten(), nn.Linear(9, 3)), images(4, 2, 4))


def test_a_parametrized_layer_is_exact(check, batch):
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(5, 6))
    check(nn.Sequential(layer, nn.Tanh(), nn.Linear(6, 3)), batch)


def test_a_forward_patched_on_a_layer_is_exact(oracle, compare, batch):
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    layer, batch = model[0], (batch[0].double(), batch[1])
    layer.forward = lambda x: F.linear(3 * x, layer.weight, layer.bias)
    patched = layer.forward
    grads = per_sample_gradients(model, None, batch)
    assert layer.forward is patched
    compare(grads, oracle(model, batch), 1e-10)


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
@pytest.mark.parametrize("length", [3, 4, 8], ids="length {}".format)
@pytest.mark.parametrize("norm_first", [True, False], ids=["norm first", "norm last"])
def test_a_transformer_encoder_is_exact_in_training(check, batch_first, length, norm_first):
    check(Encoder(batch_first, norm_first), _sequences(4, length), dtypes=(torch.float64,))


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
@pytest.mark.parametrize("quietly", [True, False], ids=["no_grad", "grad"])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.filterwarnings("ignore:.*nested tensor.*:UserWarning")
def test_a_transformer_encoder_is_exact_where_its_fast_path_would_run(check, batch_first, quietly, padded):
    model = Encoder(batch_first).eval()
    x, y = _sequences(4, 4)
    mask = torch.arange(4) >= torch.tensor([[4], [2], [3], [4]])
    with torch.set_grad_enabled(not quietly):
        check(model, ({"x": x, "mask": mask} if padded else x, y))


def test_a_transformer_encoder_takes_the_rules(covered):
    model = Encoder(True)
    assert covered(model, _sequences(4, 5)) == {name for name, _ in model.named_parameters()}


class Encoder(nn.Module):
    def __init__(self, batch_first, norm_first=False):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.2, batch_first=batch_first, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first and batch_first)
        self.head, self.batch_first = nn.Linear(8, 3), batch_first

    def forward(self, x, mask=None):
        x = self.encoder(x if self.batch_first else x.transpose(0, 1), src_key_padding_mask=mask)
        return self.head(x[:, 0] if self.batch_first else x[0])


def _sequences(n, length, width=8):
    x = torch.randn(n, length, width, generator=torch.Generator().manual_seed(0))
    return x, torch.arange(n) % 3


def test_a_whole_transformer_with_decoder_is_exact(check):
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Transformer(8, 2, 1, 1, 12, 0.0, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, source, target):
            causal = self.body.generate_square_subsequent_mask(target.shape[1], dtype=source.dtype)
            return self.head(self.body(source, target, tgt_mask=causal)[:, -1])

    (source, y), (target, _) = _sequences(3, 5), _sequences(3, 3)
    check(Translator(), ((source, target), y), dtypes=(torch.float64,))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2, "batch_first": True}], ids=str
)
def test_recurrent_layers_are_exact(check, kind, options):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = kind(8, 4, **options), nn.LazyLinear(3)
            self.head = nn.Linear(8 if options else 4, 3)

        def forward(self, x):
            if options:
                return self.head(self.cells(x)[0][:, -1])
            return self.head(self.cells(x.transpose(0, 1))[0][-1])

    check(Recurrent(), _sequences(3, 4))


def test_a_cell_unrolled_over_time_is_exact(check):
    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.step, self.head = nn.GRUCell(8, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            state = x.new_zeros(len(x), 4)
            for t in range(x.shape[1]):
                state = torch.tanh(self.step(self.cell(x[:, t], state)))
            return self.head(state)

    check(Unrolled(), _sequences(3, 4))


def test_outputs_may_be_a_tuple_that_the_loss_takes_apart(check, batch):
    class Two(Mlp):
        def forward(self, x):
            hidden = torch.tanh(self.first(x))
            return self.head(hidden), hidden

    def loss_fn(outputs, targets):
        logits, hidden = outputs
        return F.cross_entropy(logits, targets, reduction="none") + hidden.square().mean(1)

    grads = check(Two(), batch, loss_fn)
    assert isinstance(grads.outputs, tuple)


def test_inputs_may_be_a_tuple_or_a_dict(check, batch):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.heads = nn.Linear(5, 6), nn.ModuleList(nn.Linear(6, 3) for _ in range(2))

        def forward(self, x, task):
            hidden = torch.tanh(self.body(x))
            every = torch.stack([head(hidden) for head in self.heads], dim=1)
            return every[torch.arange(len(x)), task]

    x, y = batch
    task = torch.tensor([0, 1, 1, 0, 0, 1])
    check(Heads(), ((x, task), y))
    check(Heads(), ({"task": task, "x": x}, y))


def test_targets_may_be_numbers_sequences_or_tuples(check, batch):
    def distance(outputs, targets):
        return (outputs - targets).square().mean(1)

    def two(outputs, targets):
        return distance(outputs, targets[0]) + targets[1]

    x, _ = batch
    check(Mlp(), (x, torch.randn(6, 3)), distance)
    check(Mlp(), (x, (torch.randn(6, 3), torch.rand(6))), two)


@pytest.mark.parametrize(
    "coupled", [lambda x: x - x.mean(0), lambda x: x / x.norm(), lambda x: x * x.softmax(0)]
)
def test_samples_coupled_by_a_function_are_exact(check, batch, coupled):
    class Coupled(Mlp):
        def forward(self, x):
            return self.head(coupled(torch.tanh(self.first(x))))

    check(Coupled(), batch)


@pytest.mark.parametrize(
    ("strength", "dtype"),
    [
        (1e-2, torch.float32),
        (1e-3, torch.float32),
        (1e-3, torch.float64),
        (1e-6, torch.float64),
        (1e-8, torch.float64),
    ],
)
def test_a_weak_coupling_is_noticed_as_far_as_rounding_lets(check, batch, strength, dtype):
    class Weakly(Mlp):
        def forward(self, x):
            hidden = torch.tanh(self.first(x))
            return self.head(hidden - strength * hidden.mean(0))

    check(Weakly(), batch, dtypes=(dtype,))


def test_another_loss_that_couples_the_samples_is_noticed(check, batch):
    model = Mlp()
    check(model, batch, copied=False, dtypes=(torch.float64,))
    model = model.double()
    batch = (batch[0].double(), batch[1])
    per_sample_gradients(model, None, batch)

    def contrasted(outputs, targets):
        return F.cross_entropy(outputs - outputs.mean(0), targets, reduction="none")

    check(model, batch, contrasted, copied=False, dtypes=(torch.float64,))


def test_a_module_of_the_users_that_couples_only_in_training_is_noticed(check, batch):
    class Centred(nn.Module):
        def forward(self, x):
            return x - x.mean(0) if self.training else x

    model = nn.Sequential(nn.Linear(5, 6), Centred(), nn.Tanh(), nn.Linear(6, 3)).double()
    batch = (batch[0].double(), batch[1])
    model[1].eval()
    check(model, batch, copied=False, dtypes=(torch.float64,))
    model[1].train()
    check(model, batch, copied=False, dtypes=(torch.float64,))


@pytest.mark.parametrize("by_time", [True, False], ids=["step by step", "sample by sample"])
@pytest.mark.parametrize("length", [1, 4, 5])
def test_time_folded_into_the_batch_is_unfolded(check, covered, by_time, length):
    class Folding(nn.Module):
        def __init__(self):
            super().__init__()
            self.frame, self.norm, self.head = nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3)

        def forward(self, x):
            n, t, _ = x.shape
            flat = (x.transpose(0, 1) if by_time else x).flatten(0, 1)
            y = torch.tanh(self.norm(self.frame(flat)))
            y = y.unflatten(0, (t, n)).mean(0) if by_time else y.unflatten(0, (n, t)).mean(1)
            return self.head(y)

    check(Folding(), _sequences(4, length))
    assert {"frame.weight", "norm.weight"} <= covered(Folding(), _sequences(4, length))


def test_video_frames_folded_through_a_convolution_are_exact(check, images):
    class Video(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

        def forward(self, x):
            y = torch.tanh(self.norm(self.conv(x.flatten(0, 1)))).mean((2, 3))
            return self.head(y.unflatten(0, x.shape[:2]).mean(1))

    check(Video(), images(3, 4, 2, 6, 6))


def test_samples_in_the_third_dimension_are_exact(check):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(8, 6), nn.Linear(6, 3)

        def forward(self, x):
            y = torch.tanh(self.layer(x.permute(1, 2, 0, 3)))
            return self.head(y.mean((0, 1)))

    x = torch.randn(3, 2, 4, 8)
    check(Deep(), (x, torch.arange(3)))


@pytest.mark.parametrize("queries", [6, 12, 4])
def test_a_layer_on_learned_queries_that_all_samples_share_is_exact(check, batch, queries):
    class Queried(nn.Module):
        def __init__(self):
            super().__init__()
            self.queries, self.key = nn.Parameter(torch.randn(queries, 5)), nn.Linear(5, 5)
            self.head = nn.Linear(queries, 3)

        def forward(self, x):
            return self.head(x @ self.key(self.queries).T)

    check(Queried(), batch)


@pytest.mark.parametrize("width", [6, 12, 4])
def test_a_layer_on_one_learned_vector_is_exact(check, batch, width):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.code, self.gate = nn.Parameter(torch.randn(4)), nn.Linear(4, width)
            self.layer, self.head = nn.Linear(5, width), nn.Linear(width, 3)

        def forward(self, x):
            return self.head(torch.tanh(self.layer(x)) * self.gate(self.code))

    check(Gated(), batch)


def test_a_layout_seen_in_doubt_is_not_taken_for_the_next_batch(oracle, compare):
    """As many steps as samples, and one active pair on the diagonal: both readings fit, and the next batch tells."""

    class SequenceFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(8, 6), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(torch.tanh(self.layer(x.transpose(0, 1)))[0])

    def active(outputs, targets):
        return F.cross_entropy(outputs, targets.abs(), reduction="none") * (targets >= 0)

    model = SequenceFirst().double()
    x, y = _sequences(4, 4)
    x = x.double()
    per_sample_gradients(model, active, (x, torch.tensor([1, -1, -1, -1])))
    compare(per_sample_gradients(model, active, (x, y)), oracle(model, (x, y), active), 1e-10)


@pytest.mark.parametrize("layer", [nn.Linear(5, 5), nn.LayerNorm(5)], ids=["linear", "layer norm"])
def test_an_input_changed_in_place_after_the_layer_is_an_error_as_in_plain_training(batch, layer):
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = layer, nn.Linear(5, 3)

        def forward(self, x):
            hidden = x + 1
            y = self.head(torch.tanh(self.layer(hidden)))
            hidden.mul_(2)
            return y

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        per_sample_gradients(Changing(), None, batch)


def test_an_input_changed_in_place_that_autograd_itself_does_not_need_is_noticed(check, batch):
    """A frozen weight needs no input, so that autograd has nothing to complain of; the bias must still be right."""

    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x):
            hidden = x + 1
            y = self.head(torch.tanh(self.layer(hidden)))
            hidden.mul_(2)
            return y + hidden[:, :3]

    model = Changing()
    model.layer.weight.requires_grad_(False)
    check(model, batch)


def test_a_hook_of_the_users_may_replace_outputs_and_inputs(oracle, compare, batch):
    model, batch = Mlp().double(), (batch[0].double(), batch[1])
    model.first.register_forward_hook(lambda module, args, output: output.tanh() * 2)
    model.second.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model.head.register_forward_hook(
        lambda module, args, output: output.index_fill(1, torch.tensor([0]), 0.0)
    )
    grads = per_sample_gradients(model, None, batch)
    compare(grads, oracle(model, batch), 1e-10)
    assert len(model.first._forward_hooks) == 1


def test_a_full_backward_hook_of_the_users_does_no_harm(oracle, compare, batch):
    model, batch = Mlp().double(), (batch[0].double(), batch[1])
    seen = []
    handle = model.second.register_full_backward_hook(lambda *args: seen.append(1))
    grads = per_sample_gradients(model, None, batch)
    handle.remove()
    compare(grads, oracle(model, batch), 1e-10)


class Checkpointed(nn.Module):
    def __init__(self, norm, reentrant=False):
        super().__init__()
        self.first, self.norm, self.dropout = nn.Linear(5, 6), norm, nn.Dropout(0.3)
        self.head, self.reentrant = nn.Linear(6, 3), reentrant

    def part(self, x):
        return self.dropout(torch.tanh(self.norm(self.first(x))))

    def forward(self, x):
        return self.head(checkpoint(self.part, x, use_reentrant=self.reentrant))


@pytest.mark.parametrize("norm", [nn.LayerNorm(6), nn.BatchNorm1d(6)], ids=["layer norm", "batch norm"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_activation_checkpointing_is_exact(check, batch, norm, training):
    check(Checkpointed(norm).train(training), batch, dtypes=(torch.float64,))


def test_a_reentrant_checkpoint_is_refused_for_it_hides_its_parameters(batch):
    x, y = batch
    with pytest.raises(ValueError, match="use_reentrant=False"):
        per_sample_gradients(Checkpointed(nn.LayerNorm(6), reentrant=True), None, (x.requires_grad_(), y))


def test_a_compiled_model_is_unwrapped_with_the_users_names(oracle, compare, batch):
    model, batch = Mlp().double(), (batch[0].double(), batch[1])
    grads = per_sample_gradients(torch.compile(model, backend="eager"), None, batch)
    assert list(grads.combine(torch.ones(6))) == [name for name, _ in model.named_parameters()]
    compare(grads, oracle(model, batch), 1e-10)


def test_a_model_compiled_in_place_is_run_as_it_is(oracle, compare, batch):
    model, batch = Mlp().double(), (batch[0].double(), batch[1])
    rows = oracle(model, batch)
    model.compile(backend="eager")
    compare(per_sample_gradients(model, None, batch), rows, 1e-10)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_compiled_part_of_a_model_stays_compiled(oracle, compare, batch, fullgraph):
    runs = []

    def counting(graph, examples):
        return lambda *args: runs.append(1) or graph(*args)

    torch._dynamo.reset()
    part = nn.Sequential(nn.Linear(5, 6), nn.Tanh())
    model = nn.Sequential(part, nn.Linear(6, 3)).double()
    x, rows = batch[0].double(), oracle(model, (batch[0].double(), batch[1]))
    model[0] = torch.compile(part, backend=counting, fullgraph=fullgraph)
    model(x)
    rows = {name.replace("0.", "0._orig_mod.", 1): row for name, row in rows.items()}
    compare(per_sample_gradients(model, None, (x, batch[1])), rows, 1e-10)
    assert len(runs) == 1
    model(x)
    assert len(runs) == 2


def test_a_data_parallel_model_is_unwrapped_with_the_users_names(oracle, compare, batch):
    model, batch = Mlp().double(), (batch[0].double(), batch[1])
    grads = per_sample_gradients(nn.DataParallel(model).cpu(), None, batch)  # it moves the model where it can
    assert list(grads.combine(torch.ones(6))) == [name for name, _ in model.named_parameters()]
    compare(grads, oracle(model, batch), 1e-10)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_scripted_model_is_refused(batch):
    with pytest.raises(TypeError, match="TorchScript"):
        per_sample_gradients(torch.jit.script(nn.Linear(5, 3)), None, batch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [nn.Linear(5, 5), nn.LayerNorm(5)], ids=["linear", "layer norm"])
def test_a_model_of_several_dtypes_is_exact(oracle, compare, images, layer, dtype):
    class Casting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = layer.to(dtype), nn.Linear(5, 3).double()

        def forward(self, x):
            return self.head(torch.tanh(self.layer(x.to(dtype))).double())

    x, y = images(4, 5)
    model = Casting()
    compare(
        per_sample_gradients(model, None, (x, y)),
        oracle(model, (x, y)),
        1e-5 if dtype == torch.float32 else 1e-10,
    )


class Sorted(nn.Module):
    """Works on sequences in the order of their lengths, as for packing them, and puts the results back."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x, lengths):
        order = lengths.argsort(descending=True, stable=True)
        hidden = torch.tanh(self.inner(x[order]))
        inside = torch.arange(x.shape[1]) < lengths[order, None]
        means = (hidden * inside[..., None]).sum(1) / lengths[order, None]
        return self.head(means[order.argsort()])


def test_the_order_of_one_batch_is_not_taken_for_that_of_the_next(check):
    model, x = Sorted(), torch.randn(4, 7, 5)
    for lengths in ([7, 7, 7, 7], [2, 7, 1, 5], [1, 2, 3, 4]):
        check(model, ((x, torch.tensor(lengths)), torch.tensor([0, 1, 2, 0])))


class Unpadded(nn.Module):
    """Puts the sequences one after the other, without their padding, for its first layer."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x, lengths):
        sizes = lengths.tolist()
        joined = torch.tanh(self.inner(torch.cat([row[:size] for row, size in zip(x, sizes, strict=True)])))
        return self.head(torch.stack([part.mean(0) for part in joined.split(sizes)]))


def test_the_lengths_of_one_batch_are_not_taken_for_those_of_the_next(check):
    model, x = Unpadded(), torch.randn(4, 7, 5)
    for lengths in ([3, 3, 3, 3], [1, 5, 2, 4], [6, 1, 1, 4]):
        check(model, ((x, torch.tensor(lengths)), torch.tensor([0, 1, 2, 0])))


class Positions(nn.Module):
    """A vector for each place in the sequence, the same for all samples."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places, self.head = nn.Embedding(20, 4), nn.Embedding(16, 4), nn.Linear(4, 3)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(torch.tanh(self.tokens(tokens) + self.places(places)).mean(1))


@pytest.mark.parametrize("length", [15, 16])
def test_as_many_positions_as_samples_make_no_dependence(check, length):
    model, batch = Positions(), (torch.randint(20, (8, length)), torch.randint(3, (8,)))
    check(model, batch)
    assert not per_sample_gradients(model, None, batch).coupled
