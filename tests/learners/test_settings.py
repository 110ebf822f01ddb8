import re
from dataclasses import replace

import pytest

from corestream.errors import ConfigError
from corestream.learners.settings import CoresetSettings, EWCSettings, MemorySettings, OCSSettings, Settings


@pytest.mark.parametrize(
    ("kind", "name", "value", "allowed"),
    [
        (Settings, "lr", 0.0, "numbers above 0"),
        (Settings, "lr", float("nan"), "numbers above 0"),
        (Settings, "lr_decay", 1.5, "numbers above 0 to 1"),
        (Settings, "momentum", -0.1, "numbers from 0"),
        (Settings, "dropout", 1.0, "numbers from 0 to 0.99"),
        (Settings, "batch_size", 0, "whole numbers from 1"),
        (Settings, "batch_size", 2.5, "whole numbers from 1"),
        (Settings, "k", 0, "whole numbers from 1"),
        (Settings, "network", "vit", "'mlp', 'resnet18'"),
        (EWCSettings, "penalty", -1.0, "numbers from 0"),
        (MemorySettings, "capacity", 0, "whole numbers from 1"),
        (CoresetSettings, "policy", "all", "'quota', 'fixed', 'per-class'"),
        (CoresetSettings, "adapt", "yes", "True, False, 'training'"),
        (OCSSettings, "tau", -1, "numbers from 0"),
        (OCSSettings, "reference", 0, "'memory', 'replay' or a whole number from 1"),
        (OCSSettings, "weights", (1.0, 1.0), "three finite numbers"),
        (OCSSettings, "weights", (0.0, 0.0, 0.0), "three finite numbers, .*, not all of them 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_what_is_allowed(kind, name, value, allowed):
    with pytest.raises(ConfigError, match=f"^{name} is .*; allowed are {allowed}"):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("score_mode", "evil", "'train', 'eval', None"),
        ("single_pass", "yes", "True, False, 'auto'"),
        ("parameters", 5, "a list of names, None"),
        ("weights", "abc", "three finite numbers"),
        ("weights", 5, "three finite numbers"),
    ],
)
def test_a_value_of_another_kind_is_named_with_what_is_allowed(name, value, allowed):
    with pytest.raises(ConfigError, match=re.escape(f"{name} is {value!r}; allowed are {allowed}")):
        OCSSettings(**{name: value})


def test_the_edges_of_the_ranges_are_allowed():
    settings = OCSSettings(momentum=0, warm_start=0, lr_decay=1, reference=50, parameters=("stage1",))
    assert settings.reference == 50


def test_adapt_enlarges_the_batches_once():
    settings = replace(CoresetSettings(batch_size=10, sweeps=1, enlarge=10), adapt=True)
    assert (settings.batch_size, settings.k, settings.sweeps) == (100, 10, 10)
    assert replace(settings, lr=0.1) == replace(settings, lr=0.1, adapt=True)
    assert replace(settings, lr=0.1).batch_size == 100


def test_adapt_keeps_a_k_that_is_given():
    settings = CoresetSettings(batch_size=50, k=5, sweeps=3, adapt=True)
    assert (settings.batch_size, settings.k, settings.sweeps) == (50, 5, 3)
