"""What a later batch shows that the first one hid: samples in another order, one that has no finite gradient, parameters that change."""

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corestream import per_sample_gradients, score


class Permuted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, back):
        ctx.save_for_backward(back)
        return z[back]

    @staticmethod
    def backward(ctx, gradient):
        (back,) = ctx.saved_tensors
        out = torch.empty_like(gradient)
        out[back] = gradient
        return out, None


def by_loop(z: Tensor, order: Tensor) -> Tensor:
    out = torch.empty_like(z)
    for place, row in enumerate(order.tolist()):
        out[row] = z[place]
    return out


def one_hot(z: Tensor, order: Tensor) -> Tensor:
    return F.one_hot(order, len(order)).to(z.dtype)


BACK = {
    "in a loop": by_loop,
    "by a Function": lambda z, order: Permuted.apply(z, order.argsort()),
    "as an embedding": lambda z, order: F.embedding(order.argsort(), z),
    "by index_reduce": lambda z, order: torch.zeros_like(z).index_reduce(
        0, order, z, "amax", include_self=False
    ),
    "by a product from the right": lambda z, order: (z.T @ one_hot(z, order)).T,
    "by one-hot rows": lambda z, order: (one_hot(z, order).T[:, :, None] * z).sum(1),
}


class Sorting(nn.Module):
    """Sorts by length, as packed sequences are, and back again."""

    def __init__(self, back):
        super().__init__()
        self.encode, self.head, self.back = nn.Linear(5, 8), nn.Linear(8, 3), back

    def forward(self, x, length):
        order = length.argsort(descending=True, stable=True)
        return self.head(self.back(self.encode(x[order]).tanh(), order))


@pytest.mark.parametrize("back", BACK)
def test_samples_that_a_later_batch_puts_in_another_order_keep_their_gradients(oracle, compare, back):
    model, y = Sorting(BACK[back]).double(), torch.tensor([0, 1, 2, 0])
    for lengths in ([4, 4, 4, 4], [1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 1, 3, 2]):
        batch = (torch.randn(4, 5).double(), torch.tensor(lengths)), y
        compare(per_sample_gradients(model, None, batch), oracle(model, batch), 1e-10)


class Unit(nn.Module):
    """Inputs of length one; at zero the length has no derivative."""

    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(5)), nn.Linear(5, 3)

    def forward(self, x):
        z = x.clone().mul_(self.scale)  # which no rule knows
        return self.head(z / (z.square().sum(1, keepdim=True).sqrt() + 1e-6))


def test_one_sample_without_a_finite_gradient_leaves_the_others_theirs(oracle):
    model, x, y = Unit().double(), torch.randn(6, 5).double(), torch.arange(6) % 3
    x[2] = 0  # its loss is finite
    grads = per_sample_gradients(model, None, (x, y))
    good = torch.arange(6) != 2
    assert grads.general
    assert torch.equal(grads.finite, good)
    rows = oracle(model, (x[good], y[good]))
    expected = torch.cat([part.flatten(1) for part in rows.values()], 1)
    torch.testing.assert_close(grads.gram()[good][:, good], expected @ expected.T)
    assert (score(model, None, (x, y)).total == -torch.inf).tolist() == (~good).tolist()


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, block):
        ctx.block = block
        ctx.save_for_backward(x)
        with torch.no_grad():
            return x + block(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            torch.autograd.backward(x + ctx.block(x), gradient)
        return x.grad, None


class Recomputing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block, self.head = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(Reversible.apply(self.first(x), self.block))


def test_gradients_that_a_function_computes_by_itself_are_refused_and_undone():
    model, batch = Recomputing(), (torch.randn(6, 5), torch.arange(6) % 3)
    model.block.bias.grad = torch.full((8,), 3.0)
    with pytest.raises(ValueError, match=r"gradients of block\.weight, block\.bias in its own backward pass"):
        per_sample_gradients(model, None, batch)
    assert model.block.weight.grad is None
    assert (model.block.bias.grad == 3).all()


class Codebook(nn.Module):
    """Moves its codes in the forward pass, half of them as a parameter."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(6, 4))
        self.register_buffer("sizes", torch.ones(6))

    def forward(self, z):
        hot = F.one_hot(torch.cdist(z, self.codes).argmin(1), 6).to(z.dtype)
        chosen = hot @ self.codes
        self.sizes = 0.9 * self.sizes + 0.1 * hot.sum(0)
        self.codes = nn.Parameter(0.9 * self.codes + 0.1 * (hot.T @ z))
        return z + (chosen - z).detach()


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(5, 4), Codebook(), nn.Linear(4, 3)),
        nn.Sequential(nn.Embedding(9, 4, max_norm=0.5), nn.Flatten(), nn.Linear(20, 3)),
    ],
    ids=["replaced", "rescaled"],
)
def test_parameters_that_the_forward_pass_changes_are_afterwards_what_they_were(model):
    x = torch.randn(6, 5) if isinstance(model[0], nn.Linear) else torch.randint(9, (6, 5))
    before, held = copy.deepcopy(model.state_dict()), dict(model.named_parameters())
    per_sample_gradients(model, None, (x, torch.arange(6) % 3))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter is held[name] for name, parameter in model.named_parameters())


def test_gradients_do_not_hold_on_to_the_forward_graph():
    class Kept:
        def __init__(self, tensor):
            self.tensor = tensor.detach()
            alive.add(self)

    class Own(nn.PReLU):
        def forward(self, x):
            return torch.lerp(x, x.relu(), self.weight)

    alive = weakref.WeakSet()
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Sigmoid(), Own(), nn.Linear(6, 3))
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        grads = per_sample_gradients(model, None, (torch.randn(8, 6), torch.arange(8) % 3))
    gc.collect()
    assert grads.general  # for which the graph was kept meanwhile
    assert not alive


def test_a_compiled_loss_and_targets_of_inference_mode_are_taken():
    model, x, y = nn.Linear(5, 3), torch.randn(6, 5), torch.arange(6) % 3
    compiled = torch.compile(nn.CrossEntropyLoss(reduction="none"), backend="eager")
    torch.testing.assert_close(
        per_sample_gradients(model, compiled, (x, y)).norms(),
        per_sample_gradients(model, None, (x, y)).norms(),
    )
    with torch.inference_mode():
        targets = {"aim": torch.randn(6, 3)}
    per_sample_gradients(model, lambda out, t: (out - t["aim"]).square().mean(1), (x, targets))


def test_a_batch_that_is_learned_so_well_that_its_gradients_are_rounded_away_contradicts_nothing():
    model, x = nn.Sequential(nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 2)), torch.randn(8, 6)
    per_sample_gradients(model, None, (x, torch.randint(2, (8,))))
    outputs = model(x).detach()
    with torch.no_grad():
        scale = 100 / (outputs[:, 0] - outputs[:, 1]).abs().min()
        model[2].weight.mul_(scale)
        model[2].bias.mul_(scale)
    grads = per_sample_gradients(model, None, (x, outputs.argmax(1)))
    assert grads.losses.max() < 1e-35
    assert not grads.general
    assert not grads.coupled


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_that_is_finite_by_chance_leaves_as_many_gradients_as_samples(seed):
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.drop = nn.Parameter(torch.full((4,), 0.01)), nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(x) * self.scale

    torch.manual_seed(seed)
    x = torch.randn(8, 4)
    x[2] = 5e20
    grads = per_sample_gradients(Dropping(), lambda out, _: out.square().sum(1), (x, torch.zeros(8)))
    assert grads.losses.shape == (8,)


def test_a_loss_with_a_number_for_each_sample_may_have_one_without_a_finite_gradient():
    numbers = torch.rand(6) + 0.5
    model, x = Unit(), torch.randn(6, 5)
    x[2] = 0

    def loss(outputs, targets):
        return numbers * F.cross_entropy(outputs, targets, reduction="none")

    finite = per_sample_gradients(model, loss, (x, torch.arange(6) % 3)).finite
    assert finite.tolist() == [True, True, False, True, True, True]


def ce(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def of_one_class(outputs, targets):
    same = (targets[:, None] == targets).to(outputs.dtype).to_sparse()
    return ce(outputs, targets % 3) + torch.sparse.mm(same, outputs).sum(1)


def halves(outputs, targets):
    first, second = outputs.chunk(2)
    return ce(outputs, targets % 3) + F.relu((first - second).norm(dim=1) - 0.3).repeat(2)


# what couples some samples, closed while all outputs are near each other, or all classes different
OPENING = {
    "halves": halves,
    "neighbours": lambda o, y: ce(o, y % 3) + F.pad(F.relu((o[1:] - o[:-1]).abs().sum(1) - 1), (0, 1)),
    "an anchor": lambda o, y: ce(o, y % 3) + F.relu((o - o[0]).abs().sum(1) - 1),
    "pairs": lambda o, y: ce(o, y % 3) + F.relu((o[::2] - o[1::2]).norm(dim=1) - 0.3).repeat_interleave(2),
    "an inner product": lambda o, y: ce(o, y % 3) + F.relu(o[:, 0].dot(o[:, 0]) - 1.3),
    "a sparse product": of_one_class,
}


@pytest.mark.parametrize("name", OPENING)
def test_samples_that_a_later_batch_couples_by_parts_of_it_are_exact(oracle, compare, name):
    torch.manual_seed(0)
    model, loss = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double(), OPENING[name]
    for scale, targets in ((0.01, torch.arange(6)), (0.01, torch.arange(6)), (4, torch.arange(6) % 3)):
        batch = scale * torch.randn(6, 4).double(), targets
        compare(per_sample_gradients(model, loss, batch), oracle(model, batch, loss), 1e-10)
