"""One forward, one backward, and the user's model afterwards as before."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corestream import per_sample_gradients, score


class Everything(nn.Module):
    """Dropout, both kinds of statistics, attention, a recurrent layer, a free parameter, a frozen one, an unused one."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8)
        self.instance = nn.InstanceNorm1d(8, affine=True, track_running_stats=True)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
        self.cells, self.dropout = nn.GRU(8, 4, batch_first=True), nn.Dropout(0.3)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.scale, self.head, self.unused = nn.Parameter(torch.ones(4)), nn.Linear(4, 3), nn.Linear(2, 2)
        self.head.bias.requires_grad_(False)
        self.trouble = None

    def forward(self, x):
        x = self.instance(torch.relu_(self.norm(self.conv(x)))).transpose(1, 2)
        x = self.dropout(x + self.attention(x, x, x)[0])
        if self.trouble is not None:
            raise self.trouble
        return self.head(self.spectral(self.cells(x)[0][:, -1]) * self.scale)


@pytest.fixture
def model():
    model = Everything()
    model.conv.weight.grad = torch.full_like(model.conv.weight, 7.0)
    model.attention.eval()
    model.head.register_forward_hook(lambda module, args, output: None)
    return model


@pytest.fixture
def batch(images):
    return images(5, 3, 6)


def portrait(model):
    """All that a call may not change."""
    return {
        name: {
            "attributes": {key: id(value) for key, value in module.__dict__.items()},
            "training": module.training,
            "hooks": {
                k: len(v) for k, v in module.__dict__.items() if k.endswith("_hooks") and v is not None
            },
            "forward": module.forward,
            "tensors": {
                key: (
                    id(value),
                    value.requires_grad,
                    value.clone().tolist(),
                    str(value.grad),
                    value._backward_hooks,
                )
                for key, value in [*module._parameters.items(), *module._buffers.items()]
                if value is not None
            },
        }
        for name, module in model.named_modules()
    }


def test_the_model_is_afterwards_as_before(model, batch):
    before = portrait(model)
    grads = per_sample_gradients(model, None, batch)
    grads.gram()
    assert portrait(model) == before
    score(model, None, batch, reference=batch, mode="eval")
    assert portrait(model) == before


@pytest.mark.parametrize("where", ["forward", "loss", "loss of the wrong shape", "backward", "general path"])
def test_the_model_is_as_before_after_a_call_that_raised(model, batch, where):
    class Trouble(Exception):
        pass

    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise Trouble

    def loss_fn(outputs, targets):
        if where == "loss":
            raise Trouble
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        if where == "backward":
            return Breaks.apply(losses)
        return losses.mean() if where == "loss of the wrong shape" else losses

    expected = {"loss of the wrong shape": ValueError, "general path": MemoryError}.get(where, Trouble)
    model.trouble = Trouble() if where == "forward" else None
    before = portrait(model)
    with pytest.raises(expected):
        per_sample_gradients(model, loss_fn, batch, max_bytes=1 if where == "general path" else 2**28)
    assert portrait(model) == before


def test_scoring_in_another_mode_restores_each_modules_own(model, batch):
    before = [module.training for module in model.modules()]
    for mode in ("train", "eval"):
        score(model, None, batch, mode=mode)
        assert [module.training for module in model.modules()] == before
    model.trouble = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        score(model, None, batch, mode="eval")
    assert [module.training for module in model.modules()] == before


def test_random_numbers_are_drawn_as_by_one_forward(model, batch):
    twin = copy.deepcopy(model)
    torch.manual_seed(3)
    twin(batch[0])
    after_forward = torch.get_rng_state()
    for _ in range(2):  # with the first probe of the layouts, and without
        torch.manual_seed(3)
        per_sample_gradients(model, None, batch).gram()
        assert torch.equal(torch.get_rng_state(), after_forward)


def test_only_one_forward_is_made(model, batch):
    calls = []
    model.conv.register_forward_hook(lambda *args: calls.append(1))
    per_sample_gradients(model, None, batch)
    assert len(calls) == 1


def test_the_losses_and_outputs_are_those_of_the_forward(batch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(18, 3))
    grads = per_sample_gradients(model, None, batch)
    torch.testing.assert_close(grads.outputs, model(batch[0]))
    torch.testing.assert_close(
        grads.losses, nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none").detach()
    )
    assert not grads.losses.requires_grad


@pytest.mark.parametrize("around", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_it_works_whatever_grad_mode_the_caller_is_in(oracle, compare, batch, around):
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)).double()
    inputs, targets = batch[0].double(), batch[1]
    rows = oracle(model, (inputs, targets))
    with around():
        compare(per_sample_gradients(model, None, (inputs, targets)), rows, 1e-10)
        made_inside = per_sample_gradients(model, None, (inputs * 1, targets * 1))
        compare(made_inside, rows, 1e-10)


def test_inputs_that_need_a_gradient_themselves_get_none(batch):
    x, y = batch
    x.requires_grad_()
    per_sample_gradients(nn.Sequential(nn.Flatten(), nn.Linear(18, 3)), None, (x, y)).gram()
    assert x.grad is None


def test_under_autocast_the_gradients_are_within_five_hundredths(oracle, compare, batch):
    """And accumulated in float32: the verbs do not run in bfloat16 though the caller's context would have them so."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3)
    )  # fmt: skip
    rows = oracle(copy.deepcopy(model).double(), (batch[0].double(), batch[1]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        grads = per_sample_gradients(model, None, batch)
        compare(grads, rows, 5e-2)
        assert {grads.gram().dtype, grads.norms().dtype, grads.losses.dtype} == {torch.float32}
        inside = grads.gram()
    torch.testing.assert_close(inside, grads.gram(), rtol=0, atol=0)


def test_under_autocast_batch_norm_and_attention_work(model, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = score(model, None, batch)
    assert scores.total.dtype == torch.float32
    assert torch.isfinite(scores.total).all()


def test_a_buffer_changed_or_replaced_in_training_is_restored(batch):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(18, 3)
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("average", torch.zeros(18))

        def forward(self, x):
            self.calls += 1
            self.average = 0.9 * self.average + 0.1 * x.detach().flatten(1).mean(0)
            return self.head(x.flatten(1))

    model = Counting()
    average = model.average
    per_sample_gradients(model, None, batch)
    assert int(model.calls) == 0
    assert model.average is average
    assert not average.any()


class Renamed(nn.BatchNorm1d):
    """With a forward of its own, for which there is no rule."""

    def forward(self, x):
        return super().forward(x)


class Functional(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x):
        return nn.functional.batch_norm(x, self.mean, self.variance, training=True)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.SyncBatchNorm, Renamed, Functional])
def test_running_statistics_that_do_not_tell_that_they_change_are_restored(batch, norm):
    model = nn.Sequential(nn.Flatten(), nn.Linear(18, 5), norm(5), nn.Linear(5, 3))
    before, places = copy.deepcopy(model.state_dict()), [buffer.data_ptr() for buffer in model.buffers()]
    per_sample_gradients(model, None, batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [buffer.data_ptr() for buffer in model.buffers()] == places


def test_buffers_that_share_memory_stay_what_they_are():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)
            self.register_buffer("both", torch.zeros(2, 4))
            self.register_buffer("mean", self.both[0])

        def forward(self, x):
            self.both[0] = x.mean(0)
            return self.head(x - self.mean)

    model, x, y = Shared(), torch.randn(6, 4), torch.arange(6) % 3
    losses = per_sample_gradients(model, None, (x, y)).losses
    assert not model.both.any()
    torch.testing.assert_close(losses, nn.functional.cross_entropy(model(x), y, reduction="none").detach())


def test_a_graph_of_before_can_still_be_gone_back_through(batch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(18, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).eval()
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    per_sample_gradients(model, None, batch)
    loss.backward()


def test_parameters_may_be_told_by_name_or_by_module(oracle, compare, images):
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = images(4, 5)
    rows = oracle(model, (x.double(), y))
    for parameters, expected in [
        (["2.weight"], ["2.weight"]),
        ("2", ["2.weight", "2.bias"]),
        ([model[2], "0.bias"], ["0.bias", "2.weight", "2.bias"]),
        (model[4], ["4.weight", "4.bias"]),
    ]:
        grads = per_sample_gradients(model, None, (x.double(), y), parameters=parameters)
        compare(grads, {name: rows[name] for name in expected}, 1e-10)


def test_parameters_that_do_not_exist_or_do_not_learn_are_named(images):
    model = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    with pytest.raises(ValueError, match=r"'2\.weight'"):
        per_sample_gradients(model, None, images(4, 5), parameters=["2.weight"])
    with pytest.raises(ValueError, match="'0' holds no trainable parameter"):
        per_sample_gradients(model, None, images(4, 5), parameters=["0"])


def test_the_model_is_not_kept_alive(images):
    import gc
    import weakref

    model = nn.Linear(5, 3)
    per_sample_gradients(model, None, images(4, 5))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_traced_part_takes_the_general_path(oracle, compare):
    torch.manual_seed(0)
    part = torch.jit.trace(nn.Linear(8, 8), torch.zeros(1, 8))
    model = nn.Sequential(nn.Linear(5, 8), part, nn.Tanh(), nn.Linear(8, 3))
    batch = torch.randn(6, 5), torch.arange(6) % 3
    compare(per_sample_gradients(model, None, batch), oracle(model, batch), 1e-4)


class Counting(nn.Module):
    """A loss that counts the classes it has met."""

    def __init__(self):
        super().__init__()
        self.register_buffer("met", torch.zeros(3))

    def forward(self, outputs, targets):
        self.met += torch.bincount(targets, minlength=3)
        return F.cross_entropy(outputs, targets, reduction="none")


def test_what_a_loss_counts_is_as_before():
    loss, batch = Counting(), (torch.randn(6, 5), torch.arange(6) % 3)
    model = nn.Linear(5, 3)
    per_sample_gradients(model, loss, batch)
    score(model, loss, batch, batch)
    assert loss.met.tolist() == [0, 0, 0]
