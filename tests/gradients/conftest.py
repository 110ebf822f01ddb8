"""The oracle: one forward over the batch, then one backward a sample; and the check of all five verbs against it."""

import copy
from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corestream import per_sample_gradients

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10, torch.bfloat16: 5e-2}


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def _call(model, inputs):
    if isinstance(inputs, torch.Tensor):
        return model(inputs)
    return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)


def _cross_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def _convert(value, dtype):
    """Floating tensors of a nested input in another dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: _convert(part, dtype) for key, part in value.items()}
    return tuple(_convert(part, dtype) for part in value)


class FrozenStatistics(nn.Module):
    """The definition for BatchNorm: the batch's mean and biased variance as constants."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x):
        over = [0, *range(2, x.dim())]
        mean, variance = x.detach().mean(over), x.detach().var(over, correction=0)
        shape = [1, -1] + [1] * (x.dim() - 2)
        y = (x - mean.view(shape)) / (variance.view(shape) + self.eps).sqrt()
        return y if self.weight is None else y * self.weight.view(shape) + self.bias.view(shape)


def _with_constant_statistics(model):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            batch_norm = isinstance(child, nn.modules.batchnorm._BatchNorm)
            if batch_norm and (child.training or child.running_mean is None):
                setattr(module, name, FrozenStatistics(child))
    return model


@pytest.fixture
def oracle():
    """`oracle(model, batch, loss_fn, seed)` → {name: [N, *parameter]}, every sample's own gradient."""

    def gradients(model, batch, loss_fn=None, seed=0):
        inputs, targets = batch
        torch.manual_seed(seed)
        with torch.enable_grad():
            losses = (loss_fn or _cross_entropy)(_call(model, inputs), targets)
            named = {name: p for name, p in model.named_parameters() if p.requires_grad}
            rows = {name: [] for name in named}
            for loss in losses:
                found = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
                for (name, parameter), gradient in zip(named.items(), found, strict=True):
                    gradient = torch.zeros_like(parameter) if gradient is None else gradient
                    rows[name].append(gradient.to_dense() if gradient.is_sparse else gradient)
        return {name: torch.stack(parts).detach() for name, parts in rows.items()}

    return gradients


def _flat(gradient):
    return torch.cat([part.reshape(len(part), -1) for part in gradient.values()], dim=1)


def _close(found, expected, tolerance, what):
    """Relative to the largest entry."""
    error = (found.double() - expected.double()).abs().max()
    scale = expected.double().abs().max()
    assert error <= tolerance * scale + 1e-30, f"{what}: off by {error / scale:.2e} of its largest entry"


@pytest.fixture
def compare():
    """`compare(grads, rows, tolerance)` checks the five verbs, and parts of the samples, against the written-out rows."""

    def verbs(grads, rows, tolerance, other=None):
        names, matrix = list(rows), _flat(rows).double()
        count = len(matrix)
        norms = matrix.norm(dim=1)
        assert list(grads.combine(torch.ones(count))) == names
        _close(grads.norms(), norms, tolerance, "norms")

        def gram(found, left, right, what):
            scale = left.norm(dim=1)[:, None] * right.norm(dim=1)
            error = ((found.double() - left @ right.T).abs() / scale.clamp_min(1e-30)).max()
            assert error <= tolerance, f"{what}: off by {error:.2e} of the norms"

        gram(grads.gram(), matrix, matrix, "gram")
        part = slice(1, None) if count > 1 else slice(None)
        gram(grads.gram(grads[part]), matrix, matrix[part], "gram of some samples")
        gram(grads[part].gram(grads), matrix[part], matrix, "gram of some samples with all")
        generator = torch.Generator().manual_seed(1)
        weights = torch.randn(count, generator=generator, dtype=torch.float64)
        direction = {n: torch.randn(r.shape[1:], generator=generator).to(r) for n, r in rows.items()}
        v = torch.cat([part.flatten() for part in direction.values()]).double()
        _close(grads.dot(direction), matrix @ v, tolerance, "dot")

        def sums(found, expected, what):
            assert {n: part.shape for n, part in found.items()} == {n: r.shape[1:] for n, r in rows.items()}
            _close(torch.cat([part.flatten() for part in found.values()]), expected, tolerance, what)

        sums(grads.combine(weights), weights @ matrix, "combine")
        sums(grads.squares(weights), weights @ matrix.square(), "squares, weighted")
        sums(grads.squares(), matrix.square().sum(0), "squares")

    return verbs


@pytest.fixture
def check(oracle, compare):
    """`check(model, batch)` holds per_sample_gradients against the oracle, in float32 (float64 oracle), float64 and bfloat16."""

    def against_oracle(
        model, batch, loss_fn=None, *, dtypes=(torch.float32, torch.float64), seed=0, copied=True, **options
    ):
        grads = None
        for dtype in dtypes:
            twin = copy.deepcopy(model) if copied else model
            twin = twin.to(dtype)
            inputs = (_convert(batch[0], dtype), _convert(batch[1], dtype))
            exact = copy.deepcopy(twin) if copied else model
            exact = _with_constant_statistics(exact.double()) if copied else exact
            reference = (_convert(inputs[0], torch.float64), _convert(inputs[1], torch.float64))
            rows = oracle(exact, reference if copied else inputs, loss_fn, seed)
            torch.manual_seed(seed)
            grads = per_sample_gradients(twin, loss_fn, inputs, **options)
            compare(grads, rows, TOLERANCE[dtype])
        return grads

    return against_oracle


@pytest.fixture
def covered():
    """The parameters that took a layer's rule, and so not the general path."""

    def names(model, batch, loss_fn=None):
        """The general path needs room for its rows; with none at all, whatever passes took a rule."""
        return {
            name
            for name, p in model.named_parameters()
            if p.requires_grad and _has_rule(model, loss_fn, batch, name)
        }

    return names


def _has_rule(model, loss_fn, batch, name):
    try:
        per_sample_gradients(model, loss_fn, batch, parameters=[name], max_bytes=1)
    except MemoryError:
        return False
    return True


@pytest.fixture
def images():
    """`images(n, channels, *space)` with a class for each."""

    def draw(n=4, *shape, classes=3, seed=0):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(n, *shape, generator=generator), torch.arange(n) % classes

    return draw
