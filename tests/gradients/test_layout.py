import pytest
import torch

from corestream.gradients.layout import Fingerprint, Layout, candidates, pattern, probe_weights


@pytest.mark.parametrize(
    ("shape", "event", "count", "expected"),
    [
        ((4, 7), 1, 4, {Layout.FIRST}),
        ((4, 5, 7), 1, 4, {Layout.FIRST}),
        ((5, 4, 7), 1, 4, {Layout.SECOND}),
        ((4, 4, 7), 1, 4, {Layout.FIRST, Layout.SECOND}),
        ((12, 7), 1, 4, {Layout.FOLDED, Layout.FOLDED_BY_TIME}),
        ((8, 4, 7), 1, 4, {Layout.SECOND, Layout.FOLDED, Layout.FOLDED_BY_TIME}),
        ((4, 3, 6, 6), 3, 4, {Layout.FIRST}),
        ((12, 3, 6, 6), 3, 4, {Layout.FOLDED, Layout.FOLDED_BY_TIME}),
        ((4,), 1, 4, set()),
        ((4, 6, 6), 3, 4, set()),
        ((5, 6, 4, 7), 1, 4, set()),
        ((5, 7), 1, 4, set()),
    ],
)
def test_only_readings_that_the_shape_allows_are_tried(shape, event, count, expected):
    assert set(candidates(pattern(torch.Size(shape), event, count))) == expected


def test_every_reading_puts_a_samples_positions_together():
    """Each entry is its sample's number; every sample must see its own alone."""
    n = torch.arange(3.0)
    tensors = {
        Layout.FIRST: n.view(3, 1, 1).expand(3, 4, 2),
        Layout.SECOND: n.view(1, 3, 1).expand(4, 3, 2),
        Layout.FOLDED: n.repeat_interleave(4).view(12, 1).expand(12, 2),
        Layout.FOLDED_BY_TIME: n.repeat(4).view(12, 1).expand(12, 2),
    }
    for layout, x in tensors.items():
        read = layout.samples(x, 3, 1)
        assert read.shape == (3, 4, 2)
        assert torch.equal(read, n.view(3, 1, 1).expand(3, 4, 2))


def test_a_sample_without_positions_gets_one():
    assert Layout.FIRST.samples(torch.zeros(3, 5), 3, 1).shape == (3, 1, 5)
    assert Layout.FIRST.samples(torch.zeros(3, 2, 4, 5), 3, 1).shape == (3, 8, 5)
    assert Layout.FIRST.samples(torch.zeros(3, 2, 4, 5), 3, 3).shape == (3, 1, 2, 4, 5)


def test_no_two_samples_have_the_same_weight_in_the_probe_and_no_generator_is_asked():
    before = torch.get_rng_state()
    weights = probe_weights(torch.zeros(1000, dtype=torch.float64))
    assert len(weights.unique()) == 1000
    assert weights.min() >= 1
    assert weights.max() < 2
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_fingerprint_knows_a_weighted_gradient_from_a_mixed_one(dtype):
    weights = probe_weights(torch.zeros(6, dtype=torch.float64))
    rows = torch.randn(6, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain = Fingerprint.of(rows.to(dtype))
    weighted = rows.to(dtype) * weights.view(-1, 1, 1).to(dtype)
    assert plain.fits(Fingerprint.of(weighted), weights, plain.tolerance)
    for wrong in (rows, weighted.flip(0), weighted - 0.3 * weighted.mean(0), weighted.roll(1, 2), -weighted):
        assert not plain.fits(Fingerprint.of(wrong.to(dtype)), weights, plain.tolerance)


def test_samples_that_are_not_finite_do_not_hide_a_coupling():
    weights = probe_weights(torch.zeros(6, dtype=torch.float64))
    rows = torch.randn(6, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weighted = rows * weights.view(-1, 1, 1)
    coupled = weighted - 0.3 * weighted.mean(0)
    for one in (rows, weighted, coupled):
        one[2] = torch.nan
    plain = Fingerprint.of(rows)
    assert plain.fits(Fingerprint.of(weighted), weights, 1e-10)
    assert not plain.fits(Fingerprint.of(coupled), weights, 1e-10)


def test_a_gradient_of_zeros_tells_nothing():
    assert not Fingerprint.of(torch.zeros(3, 1, 2)).any()
    assert Fingerprint.of(torch.ones(3, 1, 2)).any()
