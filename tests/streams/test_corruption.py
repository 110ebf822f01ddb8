import numpy as np
import torch

from corestream.streams import benchmark
from corestream.streams.corruption import corrupt


def test_the_shares_are_exact_and_recorded() -> None:
    train = benchmark("rotated-digits", noise=0.6, label_noise=0.2)[2].train
    assert int(train.is_noise.sum()) == round(0.6 * 1297)
    assert int((train.targets != train.original_targets).sum()) == round(0.2 * 1297)


def test_noise_is_standard_normal_and_replaces_only_the_marked() -> None:
    noisy = benchmark("rotated-digits", noise=0.6)[2].train
    clean = benchmark("rotated-digits")[2].train
    x, y = noisy.tensors()
    original, labels = clean.tensors()
    assert torch.equal(x[~noisy.is_noise], original[~noisy.is_noise])
    assert torch.equal(y, labels)
    values = x[noisy.is_noise]
    assert abs(values.mean().item()) < 0.02
    assert abs(values.std().item() - 1) < 0.02


def test_the_noise_is_the_same_every_time_and_another_in_every_task() -> None:
    first, again = (benchmark("rotated-digits", noise=0.5)[1].train.tensors()[0] for _ in range(2))
    assert torch.equal(first, again)
    other = benchmark("rotated-digits", noise=0.5)[2].train
    assert not torch.equal(other.is_noise, benchmark("rotated-digits", noise=0.5)[1].train.is_noise)


def test_flipped_labels_are_evenly_other_classes_of_the_task() -> None:
    targets = torch.full((9000,), 5)
    corruption = corrupt(targets, (5, 6, 7, 8), noise=0, label_noise=1.0, key=(0, "x", 0))
    assert corruption is not None
    counts = corruption.targets.bincount(minlength=9)
    assert counts[5] == 0
    assert counts[6:].sum() == 9000
    assert all(abs(int(count) - 3000) < 200 for count in counts[6:])


def test_test_samples_are_never_corrupted() -> None:
    noisy, clean = (
        benchmark("rotated-digits", noise=1.0, label_noise=1.0)[0].test,
        benchmark("rotated-digits")[0].test,
    )
    for a, b in zip(noisy.tensors(), clean.tensors(), strict=True):
        assert torch.equal(a, b)
    assert not noisy.is_noise.any()


def test_noise_in_bytes_is_mostly_black_as_in_the_authors_program() -> None:
    corruption = corrupt(
        torch.zeros(50, dtype=torch.int64),
        tuple(range(10)),
        noise=1.0,
        label_noise=0,
        key=(0, "x", 0),
        in_bytes=True,
    )
    assert corruption is not None
    noise = corruption.noise((28, 28))
    assert noise.dtype == np.uint8
    assert abs((noise == 0).mean() - 0.683) < 0.01  # |z| < 1
    assert abs((noise >= 250).mean() - 0.159) < 0.01  # z ≤ −1 wraps around
