"""Little memory, and no work that nobody asked for."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from corestream import per_sample_gradients
from corestream.selection.criteria import gradient_criteria

N = 16


class Largest(TorchDispatchMode):
    """The largest tensor that any operation made, views left out, in bytes."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = {
            t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
        }
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in given:
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return out


def on_vectors():
    return nn.Sequential(
        nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 10)
    ), (300,)


def on_positions():
    class Mean(nn.Module):
        def forward(self, x):
            return x.mean(1)

    layers = [
        nn.Linear(200, 200),
        nn.LayerNorm(200),
        nn.ReLU(),
        nn.Linear(200, 200),
        Mean(),
        nn.Linear(200, 10),
    ]
    return nn.Sequential(*layers), (30, 200)


def on_images():
    layers = [
        nn.Conv2d(32, 64, 3),
        nn.GroupNorm(4, 64),
        nn.ReLU(),
        nn.Conv2d(64, 96, 3),
        nn.AdaptiveAvgPool2d(1),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96, 10)), (32, 6, 6)


def on_tokens():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(2000, 30), nn.Linear(30, 2000, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            return self.head(self.embedding(x.long().clamp(0, 1999)).mean(1))

    return Tied(), (6,)


CASES = [on_vectors, on_positions, on_images, on_tokens]


def all_verbs(model, batch, **options):
    grads = per_sample_gradients(model, None, batch, **options)
    direction = grads.combine(torch.ones(len(grads)))
    return [grads.norms(), grads.gram(), grads.dot(direction), *direction.values(), *grads.squares().values()]


@pytest.mark.parametrize("case", CASES)
def test_no_tensor_as_large_as_all_samples_times_all_parameters_is_made(case):
    model, shape = case()
    batch = (torch.randn(N, *shape), torch.arange(N) % 10)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    budget = N * parameters * 4 // 8
    with Largest() as largest:
        all_verbs(model, batch, max_bytes=budget)
    assert largest.bytes < N * parameters * 4 / 4
    with Largest() as largest:  # plenty of room: still never more than one layer's rows
        all_verbs(model, batch)
    biggest = max(parameter.numel() for parameter in model.parameters())
    assert largest.bytes <= max(2 * N * biggest * 4, 8 * N * batch[0][0].numel() * 9 * 4)


@pytest.mark.parametrize("case", CASES)
def test_working_memory_stays_under_the_budget(case):
    model, shape = case()
    batch = (torch.randn(N, *shape), torch.arange(N) % 10)
    model(batch[0])
    with Largest() as plain:
        F.cross_entropy(model(batch[0]), batch[1]).backward()
    budget = max(plain.bytes, 2**20)
    with Largest() as largest:
        all_verbs(model, batch, max_bytes=budget)
    assert largest.bytes <= 1.1 * budget


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("max_bytes", [1, 10_000, 1_000_000])
def test_results_do_not_depend_on_the_budget(case, max_bytes):
    model, shape = case()
    batch = (torch.randn(4, *shape), torch.arange(4) % 10)
    for small, large in zip(
        all_verbs(model, batch, max_bytes=max_bytes), all_verbs(model, batch), strict=True
    ):
        torch.testing.assert_close(small, large, rtol=1e-4, atol=1e-4 * float(large.abs().max()))


class OwnGRU(nn.GRU):
    """No rule knows what a forward pass of one's own does."""

    def forward(self, *args):
        return super().forward(*args)


def test_over_budget_the_general_path_is_an_error_that_names_its_parameters():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = OwnGRU(5, 8), nn.Linear(8, 10)

        def forward(self, x):
            return self.head(self.cells(x.transpose(0, 1))[0][-1])

    batch = (torch.randn(4, 3, 5), torch.arange(4))
    rows = 4 * 4 * (3 * 8 * 5 + 3 * 8 * 8 + 2 * 3 * 8)
    with pytest.raises(MemoryError) as error:
        per_sample_gradients(Recurrent(), None, batch, max_bytes=rows - 1)
    message = str(error.value)
    assert "cells.weight_ih_l0, cells.weight_hh_l0" in message
    assert "head" not in message
    assert f"need {rows:,} bytes for 4 samples, and max_bytes is {rows - 1:,}" in message
    per_sample_gradients(Recurrent(), None, batch, max_bytes=rows)
    per_sample_gradients(Recurrent(), None, batch, parameters=["head"], max_bytes=1)


@pytest.mark.parametrize("case", CASES)
def test_no_hook_on_a_parameter_fires(case):
    """A weight's gradient that nobody asked for is not computed."""
    model, shape = case()
    fired = []
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: fired.append(1))
    all_verbs(model, (torch.randn(4, *shape), torch.arange(4)))
    assert not fired


@pytest.mark.parametrize("case", [on_vectors, on_positions, on_images])
def test_the_pass_computes_no_weight_gradients(case):
    """Forward once, and back to each layer's output: the plain step less a third."""
    model, shape = case()
    batch = (torch.randn(N, *shape), torch.arange(N) % 10)
    for _ in range(2):  # the layouts are found, and looked at again
        per_sample_gradients(model, None, batch)
    with FlopCounterMode(display=False) as forward:
        model(batch[0])
    with FlopCounterMode(display=False) as ours:
        per_sample_gradients(model, None, batch)
    assert forward.get_total_flops() < ours.get_total_flops() < 2 * forward.get_total_flops()


def test_restricting_the_parameters_saves_the_way_back_to_the_others():
    model, shape = on_vectors()
    batch = (torch.randn(N, *shape), torch.arange(N) % 10)
    for _ in range(2):
        with FlopCounterMode(display=False) as ours:
            per_sample_gradients(model, None, batch, parameters=["4"])
    with FlopCounterMode(display=False) as forward:
        model(batch[0])
    assert ours.get_total_flops() == forward.get_total_flops()


class Attending(nn.Module):
    """By hand: tables of a sample each, a mean over its positions, as many classes as samples."""

    def __init__(self):
        super().__init__()
        self.query, self.value, self.head = nn.Linear(20, 8), nn.Linear(20, 8), nn.Linear(8, N)

    def forward(self, x):
        query = self.query(x)
        return self.head(((query @ query.transpose(1, 2)).softmax(-1) @ self.value(x)).mean(1))


def attending():
    return Attending(), (30, 20)


@pytest.mark.parametrize("case", [on_vectors, on_positions, on_images, attending])
def test_the_layouts_are_found_at_first_and_looked_at_again_ever_more_rarely(case):
    model, shape = case()
    batch = (torch.randn(N, *shape), torch.arange(N) % 10)
    counts = []
    for _ in range(9):
        with FlopCounterMode(display=False) as ours:
            per_sample_gradients(
                model, lambda outputs, y: F.cross_entropy(outputs, y, reduction="none"), batch
            )
        counts.append(ours.get_total_flops())
    assert counts[0] > counts[2]
    assert [count == counts[0] for count in counts] == [n in (0, 1, 3, 7) for n in range(9)]
    assert len(set(counts)) == 2


def test_a_gram_matrix_of_a_wide_layer_costs_no_more_than_its_rows_would():
    for case in (on_vectors, on_positions, on_images):
        model, shape = case()
        grads = per_sample_gradients(model, None, (torch.randn(N, *shape), torch.arange(N) % 10))
        parameters = sum(parameter.numel() for parameter in model.parameters())
        with FlopCounterMode(display=False) as ours:
            grads.gram()
        positions = max(1, batch_positions(shape))
        assert ours.get_total_flops() <= 2 * parameters * (N * N + N * positions) * 1.1


def batch_positions(shape):
    return {1: 1, 2: 30, 3: 16}[len(shape)]


def test_the_cheaper_route_is_chosen():
    """Many samples on a small layer are cheaper in linear cost, few on a large one by their Gram matrix."""

    class Spy:
        def __init__(self, grads):
            self.grads, self.asked = grads, []

        def __getattr__(self, name):
            self.asked.append(name)
            return getattr(self.grads, name)

        def __len__(self):
            return len(self.grads)

    for count, width, expected in [(4, 200, "gram"), (400, 3, "direction")]:
        model = nn.Linear(width, 2)
        spy = Spy(
            per_sample_gradients(
                model, None, (torch.randn(count, width), torch.zeros(count, dtype=torch.long))
            )
        )
        gradient_criteria(spy)
        assert expected in spy.asked
        assert {"gram": "direction", "direction": "gram"}[expected] not in spy.asked


def test_squares_of_a_large_table_are_never_written_out_sample_by_sample():
    """A sample's rows are as many as it looks up, however many the table has."""
    table = nn.Embedding(100_000, 8)
    model = nn.Sequential(table, nn.Flatten(), nn.Linear(24, 3))
    words = torch.randint(0, 50, (64, 3))
    grads = per_sample_gradients(model, None, (words, torch.randint(0, 3, (64,))))
    with Largest() as largest:
        squares = grads.squares()["0.weight"]
    assert largest.bytes <= table.weight.nbytes
    rows = torch.stack([grads.combine(one)["0.weight"][:50] for one in torch.eye(64)])
    torch.testing.assert_close(squares[:50], rows.square().sum(0))
    assert not squares[50:].any()
