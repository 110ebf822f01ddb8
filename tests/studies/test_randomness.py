import random

import numpy as np
import torch

from corestream.studies import checkpoint, randomness


def draws():
    legacy = np.random  # the global generator, which third parties draw from
    return random.random(), random.gauss(0, 1), legacy.rand(), legacy.randn(), torch.rand(3).tolist()


def test_every_generator_goes_on_as_if_nothing_had_happened(tmp_path):
    randomness.seed_all(3)
    draws()  # an odd number of normal draws leaves a second one waiting inside the generators
    tensors, facts = randomness.capture("cpu")
    expected = draws()
    randomness.seed_all(99)
    checkpoint.save(tmp_path / "c", "d", tensors, facts)
    saved = checkpoint.load(tmp_path / "c", "d")
    randomness.restore("cpu", saved.tensors, saved.facts)
    assert draws() == expected


def test_equal_seeds_draw_equally():
    randomness.seed_all(5)
    first = draws()
    randomness.seed_all(5)
    assert draws() == first
