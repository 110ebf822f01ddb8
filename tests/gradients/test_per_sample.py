import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corestream import per_sample_gradients


class Mixed(nn.Module):
    """One layer for each kind of block: convolution, linear, embedding, norm, tied weight, general path."""

    def __init__(self):
        super().__init__()
        self.embedding, self.conv, self.norm = (
            nn.Embedding(7, 6),
            nn.Conv1d(6, 6, 3, padding=1),
            nn.LayerNorm(6),
        )
        self.mix, self.scale, self.out = nn.Linear(6, 6), nn.Parameter(torch.ones(6)), nn.Linear(6, 7)
        self.out.weight = self.embedding.weight

    def forward(self, x, tokens):
        hidden = self.embedding(tokens) + x[:, None]
        hidden = self.norm(torch.tanh(self.conv(hidden.transpose(1, 2))).transpose(1, 2))
        return self.out(torch.tanh(self.mix(hidden).mean(1)) / self.scale)


@pytest.fixture
def model():
    return Mixed().double()


@pytest.fixture
def batch():
    x, tokens = torch.randn(5, 6, dtype=torch.float64), torch.randint(0, 7, (5, 4))
    return (x, tokens), torch.arange(5)


@pytest.fixture
def grads(model, batch):
    return per_sample_gradients(model, None, batch)


@pytest.mark.parametrize(
    "index", [slice(1, 3), torch.tensor([3, 0, 0]), torch.tensor([True, False, True, True, False])]
)
def test_some_of_the_samples_have_the_gradients_of_those(grads, oracle, compare, model, batch, index):
    rows = {name: values[index] for name, values in oracle(model, batch).items()}
    compare(grads[index], rows, 1e-10)
    grads.norms()
    compare(grads[index], rows, 1e-10)
    torch.testing.assert_close(grads[index].losses, grads.losses[index])


@pytest.mark.parametrize("index", [[3, 0, 0], [True, False, True, True, False]])
def test_a_list_chooses_samples_like_a_tensor_of_it(grads, index):
    assert torch.equal(grads[index].gram(), grads[torch.tensor(index)].gram())
    assert torch.equal(grads[index].losses, grads.losses[index])
    assert len(grads[[]]) == 0


@pytest.mark.parametrize("index", [3, (3, 4), "3", None])
def test_an_index_that_is_no_choice_of_samples_is_an_error(grads, index):
    with pytest.raises(
        TypeError, match=r"a slice, or a tensor or list of indices, got .*grads\[n : n \+ 1\]"
    ):
        grads[index]


@pytest.mark.parametrize(
    "names", [["conv.bias"], ["mix.weight", "embedding.weight"], ["norm.bias", "scale"], ["out.bias"]]
)
def test_some_of_the_parameters_have_the_gradients_of_those(grads, oracle, compare, model, batch, names):
    rows = {name: values for name, values in oracle(model, batch).items() if name in names}
    compare(grads.only(names), rows, 1e-10)


def test_gradients_of_two_batches_have_inner_products(grads, oracle, model, batch):
    (x, tokens), y = batch
    second = ((x[:3] + 1, tokens[:3].flip(1)), y[:3])
    flat = [torch.cat([r.flatten(1) for r in oracle(model, b).values()], 1) for b in (batch, second)]
    other = per_sample_gradients(model, None, second)
    torch.testing.assert_close(grads.gram(other), flat[0] @ flat[1].T)
    torch.testing.assert_close(other.gram(grads), flat[1] @ flat[0].T)


def test_batches_that_reach_a_parameter_in_different_ways_have_inner_products(oracle):
    class Switching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head, self.odd = nn.Linear(6, 6), nn.Linear(6, 3), False

        def forward(self, x):
            weight = self.layer.weight
            return self.head(torch.tanh(F.linear(x, weight) if self.odd else self.layer(x)))

    model, x, y = Switching().double(), torch.randn(4, 6, dtype=torch.float64), torch.arange(4) % 3
    first, rows = per_sample_gradients(model, None, (x, y)), oracle(model, (x, y))
    model.odd = True
    second, others = per_sample_gradients(model, None, (x, y)), oracle(model, (x, y))
    expected = sum(rows[n].flatten(1) @ others[n].flatten(1).T for n in rows)
    torch.testing.assert_close(first.gram(second), expected)
    torch.testing.assert_close(second.gram(first), expected.T)


def test_sequences_of_another_length_have_inner_products(oracle):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    def loss_fn(outputs, targets):
        return F.cross_entropy(outputs.mean(1), targets, reduction="none")

    batches = [(torch.randn(3, length, 6, dtype=torch.float64), torch.arange(3)) for length in (1, 2, 30)]
    rows = [torch.cat([r.flatten(1) for r in oracle(model, b, loss_fn).values()], 1) for b in batches]
    grads = [per_sample_gradients(model, loss_fn, b) for b in batches]
    for i in range(3):
        for j in range(3):
            torch.testing.assert_close(grads[i].gram(grads[j]), rows[i] @ rows[j].T)


def test_gradients_of_another_model_are_refused(grads, batch):
    stranger = per_sample_gradients(Mixed().double(), None, batch)
    with pytest.raises(ValueError, match="other: these gradients are of another model"):
        grads.gram(stranger)
    with pytest.raises(ValueError, match="other"):
        grads.gram(grads.only(["scale"]))


def test_a_direction_may_leave_parameters_out_but_not_name_strangers(grads, oracle, model, batch):
    rows = oracle(model, batch)
    for name, values in rows.items():
        direction = torch.randn_like(values[0])
        expected = values.flatten(1) @ direction.flatten()
        torch.testing.assert_close(grads.dot({name: direction}), expected)
    assert not grads.dot({}).any()
    with pytest.raises(ValueError, match="direction: nobody"):
        grads.dot({"nobody": torch.zeros(1)})


def test_weights_of_another_shape_are_refused(grads):
    for verb in (grads.combine, grads.squares):
        with pytest.raises(ValueError, match=r"weights must have shape \[5\].*\[4\]"):
            verb(torch.ones(4))


def test_weighted_sums_are_the_gradient_of_the_weighted_loss(model, batch, grads):
    """What lets one pass serve selection and update."""
    (x, tokens), y = batch
    weights = torch.tensor([0.5, 0.0, 0.0, 2.0, 1.0], dtype=torch.float64)
    (F.cross_entropy(model(x, tokens), y, reduction="none") @ weights).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(grads.combine(weights)[name], parameter.grad)
        assert not grads.combine(weights)[name].requires_grad


def test_sums_have_the_dtype_of_their_parameters():
    model = nn.Linear(5, 3).bfloat16()
    grads = per_sample_gradients(model, None, (torch.randn(4, 5).bfloat16(), torch.arange(4) % 3))
    assert grads.combine(torch.ones(4))["weight"].dtype == torch.bfloat16
    assert grads.gram().dtype == torch.float32


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("asked_first", ["norms", "gram", "dot", "combine", "squares", "finite"])
def test_a_sample_that_is_not_finite_counts_as_a_zero_gradient(
    model, batch, oracle, compare, bad, asked_first
):
    (x, tokens), y = batch
    rows = {name: values.clone() for name, values in oracle(model, batch).items()}
    for values in rows.values():
        values[2] = 0
    x[2, 1] = bad
    grads = per_sample_gradients(model, None, ((x, tokens), y))
    arguments = {"combine": [torch.ones(5)], "dot": [{"scale": torch.ones(6)}], "finite": None}.get(
        asked_first, []
    )
    if arguments is not None:
        getattr(grads, asked_first)(*arguments)
    assert grads.finite.tolist() == [True, True, False, True, True]
    compare(grads, rows, 1e-10)


def test_a_finite_loss_with_a_gradient_that_is_not_finite_counts_as_zero_too():
    def loss_fn(outputs, targets):
        return outputs.sum(1).sqrt()  # at 0 its slope is infinite

    model, x = nn.Linear(3, 2, bias=False), torch.randn(4, 3).abs()
    nn.init.ones_(model.weight)
    x[1] = 0
    grads = per_sample_gradients(model, loss_fn, (x, torch.zeros(4)))
    assert torch.isfinite(grads.losses).all()
    assert grads.finite.tolist() == [True, False, True, True]
    assert torch.isfinite(grads.gram()).all()
    assert torch.isfinite(grads.combine(torch.ones(4))["weight"]).all()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_on_the_general_path_too_a_bad_sample_leaves_the_others_alone(oracle, compare, kind):
    class Own(kind):
        """No rule knows what a forward pass of one's own does."""

        def forward(self, *args):
            return super().forward(*args)

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = Own(6, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.cells(x)[0][:, -1])

    model, x, y = Recurrent().double(), torch.randn(4, 3, 6, dtype=torch.float64), torch.arange(4) % 3
    rows = oracle(model, (x, y))
    for values in rows.values():
        values[1] = 0
    x[1, 2, 0] = torch.nan
    grads = per_sample_gradients(model, None, (x, y))
    assert grads.finite.tolist() == [True, False, True, True]
    assert torch.isnan(grads.losses[1])
    compare(grads, rows, 1e-10)


def test_a_zero_gradient_has_norm_zero(grads):
    model = nn.Linear(3, 2)
    grads = per_sample_gradients(
        model,
        lambda outputs, targets: outputs.sum(1) * targets,
        (torch.ones(3, 3), torch.tensor([0.0, 1.0, 0.0])),
    )
    assert (grads.norms() > 0).tolist() == [False, True, False]


def test_a_loss_that_no_parameter_touches_has_zero_gradients():
    model = nn.Linear(3, 2)
    grads = per_sample_gradients(
        model, lambda outputs, targets: targets * 2, (torch.ones(3, 3), torch.ones(3))
    )
    assert grads.unused == {"weight", "bias"}
    assert not grads.gram().any()
    assert grads.combine(torch.ones(3))["weight"].shape == (2, 3)
    assert grads.squares()["bias"].tolist() == [0.0, 0.0]


def test_a_sum_over_some_rows_is_that_of_their_weights_among_all():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    grads = per_sample_gradients(model, None, (torch.randn(8, 5).double(), torch.arange(8) % 3))
    rows, weights = torch.tensor([6, 1, 6]), torch.tensor([0.5, 2.0, -1.0]).double()
    among_all = torch.zeros(8).double().index_add_(0, rows, weights)
    for name, value in grads.combine(among_all).items():
        torch.testing.assert_close(grads.combine(weights, rows)[name], value)
    with pytest.raises(ValueError, match=r"weights must have shape \[3\], one a row, got \[8\]"):
        grads.combine(among_all, rows)


def test_the_sum_of_all_is_that_of_the_oracle_and_needs_no_norms(grads, oracle, model, batch):
    expected = {name: rows.sum(0) for name, rows in oracle(model, batch).items()}
    torch.testing.assert_close(grads.total(), expected)
    assert grads._norms is None


@pytest.mark.parametrize("bad", ["loss", "gradient", "square", "loss alone"])
def test_the_sum_of_all_leaves_out_what_is_not_finite(bad):
    def loss_fn(outputs, targets):
        losses = outputs.sum(1).sqrt()  # at 0 its slope is infinite
        if bad == "loss alone":
            return losses + torch.where(targets == 2, torch.inf, 0)
        return losses * torch.where(targets == 2, 1e25, 1) if bad == "square" else losses

    model, x, y = nn.Linear(3, 2, bias=False), torch.randn(4, 3).abs(), torch.arange(4)
    nn.init.ones_(model.weight)
    x[2] = {"loss": torch.nan, "gradient": 0.0}.get(bad, 1.0)
    grads = per_sample_gradients(model, loss_fn, (x, y))
    kept = per_sample_gradients(model, loss_fn, (x[[0, 1, 3]], y[[0, 1, 3]]))
    torch.testing.assert_close(grads.total(), kept.combine(torch.ones(3)))
    assert grads.finite.tolist() == [True, True, False, True]


def test_the_sum_of_all_has_nothing_of_a_sample_that_others_stood_in_for():
    class Free(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(3, 2))

        def forward(self, x):
            return torch.einsum("nd,dc->nc", [x, self.matrix])  # in a list: the general path

    model, x, y = Free(), torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    x[2] = torch.nan
    kept = per_sample_gradients(model, None, (x[[0, 1, 3]], y[[0, 1, 3]]))
    torch.testing.assert_close(per_sample_gradients(model, None, (x, y)).total(), kept.combine(torch.ones(3)))


@pytest.mark.parametrize("laid_out", ["model", "batch"])
def test_sums_lie_in_memory_as_their_parameters_do(laid_out):
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(32, 3))
    x = torch.randn(5, 4, 4, 4)
    if laid_out == "model":
        model = model.to(memory_format=torch.channels_last)
    else:
        x = x.to(memory_format=torch.channels_last)
    grads = per_sample_gradients(model, None, (x, torch.arange(5) % 3))
    for combined in (grads.combine(torch.ones(5)), grads.combine(torch.ones(2), torch.tensor([0, 3]))):
        assert combined["0.weight"].stride() == model[0].weight.stride()


def test_a_direction_of_another_shape_is_refused():
    grads = per_sample_gradients(nn.Linear(4, 3), None, (torch.randn(5, 4), torch.arange(5) % 3))
    with pytest.raises(ValueError, match=r"weight has shape \[4, 3\], and the parameter \[3, 4\]"):
        grads.dot({"weight": torch.randn(4, 3)})


def test_complex_parameters_are_refused():
    with pytest.raises(ValueError, match="complex parameters"):
        per_sample_gradients(
            nn.Linear(4, 3, dtype=torch.complex64), None, (torch.randn(5, 4), torch.arange(5) % 3)
        )


class Sentences(nn.Module):
    """A table, a recurrent layer, a norm and linear layers on sequences."""

    def __init__(self):
        super().__init__()
        self.words, self.cells = nn.Embedding(7, 4), nn.GRU(4, 5, batch_first=True)
        self.norm, self.mix, self.head = nn.LayerNorm(5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.mix(self.norm(self.cells(self.words(x))[0])).tanh().mean(1))


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3)), torch.randn(4, 1, 6, 6)),
        (nn.Sequential(nn.Conv2d(1, 4, 6), nn.Flatten(), nn.Linear(4, 3)), torch.randn(4, 1, 6, 6)),
        (Sentences(), torch.randint(7, (4, 6))),
    ],
    ids=["convolutions", "a convolution with one position", "sentences"],
)
def test_none_of_the_samples_is_a_choice_too(model, x):
    grads = per_sample_gradients(model, None, (x, torch.arange(4) % 3))
    none, empty = grads[:0], torch.zeros(0)
    sums = [none.combine(empty), none.squares(), grads.combine(empty, torch.zeros(0, dtype=torch.long))]
    for found in sums:
        assert {name: part.shape for name, part in found.items()} == {
            name: p.shape for name, p in model.named_parameters()
        }
        assert not any(part.any() for part in found.values())
    assert none.norms().shape == none.dot(sums[0]).shape == none.finite.shape == (0,)
    assert none.gram().shape == (0, 0)
    assert none.gram(grads).shape == (0, 4)
    assert grads.gram(none).shape == (4, 0)


@pytest.mark.parametrize("names", [["nope"], "nope", ["weight", "nope"]], ids=str)
def test_names_that_the_model_does_not_have_are_refused(names):
    grads = per_sample_gradients(nn.Linear(3, 2), None, (torch.randn(4, 3), torch.arange(4) % 2))
    with pytest.raises(ValueError, match="names: nope are no trainable parameters"):
        grads.only(names)


def test_a_modules_name_stands_for_its_parameters():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    grads = per_sample_gradients(model, None, (torch.randn(4, 3), torch.arange(4) % 2))
    assert torch.equal(grads.only("2").norms(), grads.only(["2.weight", "2.bias"]).norms())


def test_arguments_of_another_kind_are_named():
    grads = per_sample_gradients(nn.Linear(3, 2), None, (torch.randn(4, 3), torch.arange(4) % 2))
    with pytest.raises(TypeError, match="weights must be a tensor, one number a sample, got list"):
        grads.combine([1.0] * 4)
    with pytest.raises(TypeError, match="direction must be a dict of tensors by parameter, got Tensor"):
        grads.dot(torch.zeros(8))


def test_one_name_may_be_given_alone():
    grads = per_sample_gradients(nn.Linear(3, 2), None, (torch.randn(4, 3), torch.arange(4) % 2))
    assert torch.equal(grads.only("bias").norms(), grads.only(["bias"]).norms())
    assert (grads.only("bias").norms() > 0).all()
