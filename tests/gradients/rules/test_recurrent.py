import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from corestream import per_sample_gradients

WIDTH, HIDDEN = 5, 4
LENGTHS = torch.tensor([3, 6, 1, 4])
KINDS = [nn.RNN, nn.LSTM, nn.GRU]
CELLS = [nn.RNNCell, nn.LSTMCell, nn.GRUCell]


class Reader(nn.Module):
    """A recurrent layer of which outputs and last states are used, under a head; sequences may have lengths of their own."""

    def __init__(self, kind, *, sorted_by_user=False, **options):
        super().__init__()
        self.cells = kind(WIDTH, HIDDEN, **options)
        self.sides = 2 if self.cells.bidirectional else 1
        self.head = nn.Linear(HIDDEN * self.sides, 3)
        self.sorted_by_user = sorted_by_user

    def forward(self, x, lengths=None, start=None):
        first = self.cells.batch_first
        x = x if first else x.transpose(0, 1)
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=self.sorted_by_user)
        if start is not None:
            start = start.transpose(0, 1).contiguous()
            start = (start, start.cos()) if isinstance(self.cells, nn.LSTM) else start
        outputs, states = self.cells(x, start)
        if lengths is not None:
            outputs, _ = pad_packed_sequence(outputs, batch_first=first)
        # samples second, in the outputs as in the states
        outputs = outputs.transpose(0, 1) if first else outputs
        states = torch.cat(states) if isinstance(states, tuple) else states
        return self.head((outputs.sum(0) + torch.cat([states.sum(0)] * self.sides, 1)).tanh())


@pytest.fixture
def sequences():
    def draw(n=4, length=6):
        generator = torch.Generator().manual_seed(0)
        return torch.randn(n, length, WIDTH, generator=generator), torch.arange(n) % 3

    return draw


SHAPES = [
    {"num_layers": layers, "bidirectional": both, "batch_first": first}
    for layers, both, first in itertools.product((1, 2), (False, True), (False, True))
]


def _names(options):
    return ", ".join(f"{name} {value}" for name, value in options.items())


@pytest.mark.parametrize("packed", [False, True], ids=["of one length", "of many lengths"])
@pytest.mark.parametrize("options", SHAPES, ids=_names)
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_are_exact_without_a_backward_pass_for_each(check, sequences, kind, options, packed):
    x, y = sequences()
    grads = check(Reader(kind, **options), ((x, LENGTHS) if packed else x, y), dtypes=(torch.float64,))
    assert not grads.general


@pytest.mark.parametrize("kind", KINDS)
def test_float32_and_bfloat16_are_as_exact_as_they_can_be(check, sequences, kind):
    check(Reader(kind), sequences(), dtypes=(torch.float32, torch.bfloat16))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_without_biases_and_rectified_ones_are_exact(check, sequences, kind):
    options = {"nonlinearity": "relu"} if kind is nn.RNN else {}
    grads = check(Reader(kind, bias=False, **options), sequences(), dtypes=(torch.float64,))
    assert not grads.general


@pytest.mark.parametrize("packed", [False, True], ids=["of one length", "of many lengths"])
@pytest.mark.parametrize("first", [False, True], ids=["sequence first", "batch first"])
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers_draws_what_the_layer_itself_does(check, sequences, kind, first, packed):
    x, y = sequences()
    model = Reader(kind, num_layers=3, dropout=0.4, batch_first=first)
    check(model, ((x, LENGTHS) if packed else x, y), dtypes=(torch.float64,))
    check(model.eval(), ((x, LENGTHS) if packed else x, y), dtypes=(torch.float64,))


@pytest.mark.parametrize("packed", [False, True], ids=["of one length", "of many lengths"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_given_first_state_is_where_it_begins(check, sequences, kind, packed):
    x, y = sequences()
    inputs = {"x": x, "start": torch.randn(4, 2, HIDDEN)} | ({"lengths": LENGTHS} if packed else {})
    grads = check(Reader(kind, bidirectional=True), (inputs, y), dtypes=(torch.float64,))
    assert not grads.general


@pytest.mark.parametrize("kind", KINDS)
def test_a_learned_first_state_is_exact(check, sequences, kind):
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.start, self.reader = nn.Parameter(torch.randn(HIDDEN)), Reader(kind)

        def forward(self, x):
            return self.reader(x, start=self.start.expand(len(x), 1, HIDDEN))

    check(Learned(), sequences(), dtypes=(torch.float64,))


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_that_the_user_has_sorted_are_exact(check, sequences, kind):
    x, y = sequences()
    check(
        Reader(kind, sorted_by_user=True), ((x, LENGTHS.sort(descending=True)[0]), y), dtypes=(torch.float64,)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_sorts_its_sequences_has_samples_of_their_own(check, sequences, kind):
    class Sorting(Reader):
        def forward(self, x, lengths):
            lengths, order = lengths.sort(descending=True)
            packed = pack_padded_sequence(x[order], lengths, batch_first=True)
            states = self.cells(packed)[1]
            return self.head((states[0] if isinstance(states, tuple) else states)[-1][order.argsort()])

    x, y = sequences()
    grads = check(Sorting(kind, batch_first=True), ((x, LENGTHS), y), dtypes=(torch.float64,))
    assert not grads.coupled


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_gives_outputs_and_states_torchs_dtypes(sequences, kind):
    class Told(Reader):
        def forward(self, x):
            outputs, states = self.cells(x)
            states = states if isinstance(states, tuple) else (states,)
            seen.append([tensor.dtype for tensor in (outputs, *states)])
            return self.head(outputs.sum(1))

    model, (x, y), seen = Told(kind, batch_first=True), sequences(), []
    with torch.autocast("cpu", torch.bfloat16):
        model(x)
        per_sample_gradients(model, None, (x, y))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_may_differ_from_batch_to_batch(oracle, compare, sequences, kind):
    model, (x, y) = Reader(kind).double(), sequences()
    for seed in range(6):
        lengths = torch.randint(1, 7, (4,), generator=torch.Generator().manual_seed(seed))
        batch = ((x.double(), lengths), y)
        compare(per_sample_gradients(model, None, batch), oracle(model, batch), 1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "n", [1, 4, 8, 16]
)  # one sample, as many as steps, as hidden features, as an LSTM's gates
def test_as_many_steps_or_features_as_samples_are_told_apart(check, sequences, kind, n):
    check(Reader(kind, batch_first=True), sequences(n, 4), dtypes=(torch.float64,))
    check(Reader(kind), sequences(n, 4), dtypes=(torch.float64,))


@pytest.mark.parametrize("frozen", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_part_is_left_out(check, sequences, kind, frozen):
    model = Reader(kind)
    model.cells.get_parameter(frozen).requires_grad_(False)
    assert not check(model, sequences(), dtypes=(torch.float64,)).general


@pytest.mark.parametrize(
    "alone", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hh_l1"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_one_parameter_may_be_asked_for_alone(oracle, compare, sequences, kind, alone):
    model, (x, y) = Reader(kind, num_layers=2).double(), sequences()
    name, batch = f"cells.{alone}", (x.double(), y)
    grads = per_sample_gradients(model, None, batch, parameters=[name], max_bytes=1)
    compare(grads, {name: oracle(model, batch)[name]}, 1e-10)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_cells_in_a_loop_of_ones_own_are_exact(check, sequences, kind, bias):
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = kind(WIDTH, HIDDEN, bias=bias), nn.Linear(HIDDEN, 3)

        def forward(self, x):
            state = None
            for step in x.unbind(1):
                state = self.cell(step, state)
            return self.head(state[0] if isinstance(state, tuple) else state)

    assert not check(Loop(), sequences(), dtypes=(torch.float64,)).general


class AndBeside(Reader):
    """Its hidden weights are used once more outside, and of its outputs the first alone: fewer uses of them than steps."""

    def __init__(self, kind):
        super().__init__(kind, batch_first=True)
        self.wide = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x):
        outputs, _ = self.cells(x)
        weight = self.cells.weight_hh_l0[:HIDDEN]
        return self.head(
            outputs[:, 1] + torch.linalg.solve(weight, self.wide(x[:, 0]).unsqueeze(-1)).squeeze(-1)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_use_of_the_weights_outside_of_the_layer_is_not_left_out(check, sequences, kind):
    assert "cells.weight_hh_l0" in check(AndBeside(kind), sequences(), dtypes=(torch.float64,)).general


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_called_twice_and_one_shared_by_two_names_are_exact(check, sequences, kind):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = kind(WIDTH, HIDDEN, batch_first=True)
            self.other, self.head = self.one, nn.Linear(HIDDEN, 3)

        def forward(self, x):
            return self.head(self.one(x)[0][:, -1] * self.other(x.flip(1))[0].mean(1))

    assert not check(Twice(), sequences(), dtypes=(torch.float64,)).general


@pytest.mark.parametrize("kind", KINDS)
def test_a_forward_of_ones_own_is_exact_on_the_general_path(check, sequences, kind):
    class Own(kind):
        def forward(self, x, hx=None):
            return super().forward(x.sin(), hx)

    grads = check(Reader(Own), sequences(), dtypes=(torch.float64,))
    assert grads.general == {name for name, _ in Reader(kind).named_parameters() if name.startswith("cells")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_made_of_others_is_exact(check, sequences, kind):
    model = Reader(kind).double()
    nn.utils.parametrizations.weight_norm(model.cells, "weight_hh_l0")
    check(model, sequences(), dtypes=(torch.float64,), copied=False)


def test_a_state_that_is_projected_is_exact(check, sequences):
    class Projected(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = nn.LSTM(WIDTH, HIDDEN, proj_size=2), nn.Linear(2, 3)

        def forward(self, x):
            return self.head(self.cells(x.transpose(0, 1))[0][-1])

    check(Projected(), sequences(), dtypes=(torch.float64,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_that_is_not_finite_leaves_the_others_alone(oracle, compare, sequences, kind):
    model, (x, y) = Reader(kind).double(), sequences()
    x = x.double()
    rows = oracle(model, (x, y))
    for values in rows.values():
        values[1] = 0
    x[1, 2, 0] = torch.nan
    grads = per_sample_gradients(model, None, (x, y))
    assert grads.finite.tolist() == [True, False, True, True]
    compare(grads, rows, 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_along_the_time_axis_are_told_to_depend_on_each_other(sequences, kind):
    class Mistaken(nn.Module):
        """Batch first, and the layer is not told."""

        def __init__(self):
            super().__init__()
            self.cells, self.head = kind(WIDTH, HIDDEN), nn.Linear(HIDDEN, 3)

        def forward(self, x):
            return self.head(self.cells(x)[0][:, -1])

    assert per_sample_gradients(Mistaken(), None, sequences()).coupled


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_lie_in_memory_as_torchs_do(check, sequences, kind):
    class Viewing(Reader):
        def forward(self, x):
            outputs, _ = self.cells(x.transpose(0, 1))
            return self.head(outputs.view(len(outputs) * len(x), -1).view(len(outputs), len(x), -1).sum(0))

    check(Viewing(kind), sequences(), dtypes=(torch.float64,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [True, False])
def test_what_goes_in_may_be_changed_afterwards_where_torch_takes_a_copy(check, sequences, kind, first):
    class Changing(Reader):
        def forward(self, x):
            x = x.clone()
            outputs = self.cells(x if first else x.transpose(0, 1).clone())[0]
            x.mul_(2)
            return self.head(outputs.mean(1 if first else 0) + x.sum((1, 2))[:, None])

    check(Changing(kind, batch_first=first), sequences(), dtypes=(torch.float64,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_the_model_may_run_in_inference_mode(check, sequences, kind):
    class Guided(Reader):
        def forward(self, x):
            with torch.inference_mode():
                guide = self.cells(x)[0].mean(1)
            return self.head(self.cells(x)[0].mean(1) * guide.clone())

    check(Guided(kind, batch_first=True), sequences(), dtypes=(torch.float64,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [3, 4])  # as many as there are samples
def test_a_learned_sequence_is_no_sign_that_samples_depend_on_each_other(check, images, kind, length):
    class Prompted(nn.Module):
        def __init__(self):
            super().__init__()
            self.prompt = nn.Parameter(torch.randn(length, WIDTH))
            self.cells, self.head = kind(WIDTH, HIDDEN), nn.Linear(HIDDEN, 3)

        def forward(self, x):
            return self.head(x * self.cells(self.prompt)[0][-1])

    assert not check(Prompted(), images(4, HIDDEN), dtypes=(torch.float64,)).coupled


@pytest.mark.parametrize("length", [4, 6])
@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_some_of_the_samples_or_none_may_go_through(check, sequences, kind, count, length):
    class Routed(Reader):
        def forward(self, x):
            rows = torch.arange(count)
            through = self.cells(x[rows])[0].mean(1)
            return self.head(x[:, 0, :HIDDEN].index_put((rows,), through))

    check(Routed(kind, batch_first=True), sequences(4, length), dtypes=(torch.float64,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_derivative_inside_of_the_model_is_no_trouble(check, sequences, kind):
    class Along(Reader):
        def forward(self, x):
            return self.head(torch.func.jvp(lambda z: self.cells(z)[0].mean(1), (x,), (x.cos(),))[1])

    model = Along(kind, batch_first=True)
    check(model, sequences(), dtypes=(torch.float64,))


def test_a_weight_that_is_a_part_of_another_and_begins_within_a_row_is_exact(check, sequences):
    class Banked(nn.Module):
        def __init__(self):
            super().__init__()
            self.bank, self.cell = nn.Parameter(torch.randn(6, HIDDEN)), nn.RNNCell(WIDTH, HIDDEN)
            self.head = nn.Linear(HIDDEN, 3)

        def forward(self, x):
            weight = self.bank.view(-1)[2 : 2 + HIDDEN * HIDDEN].view(HIDDEN, HIDDEN)
            state = x[:, 0, :HIDDEN]
            for step in x.unbind(1):
                state = torch.func.functional_call(self.cell, {"weight_hh": weight}, (step, state))
            return self.head(state)

    check(Banked(), sequences(), dtypes=(torch.float64,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_first_state_gets_torchs_own_message(sequences, kind):
    x, y = sequences()
    with pytest.raises(RuntimeError, match="Expected hidden"):
        per_sample_gradients(Reader(kind), None, ({"x": x, "start": torch.randn(4, 1, HIDDEN + 1)}, y))


def test_the_layer_is_as_it_was_afterwards(sequences):
    model = Reader(nn.LSTM)
    per_sample_gradients(model, None, sequences())
    assert "forward" not in vars(model.cells)
