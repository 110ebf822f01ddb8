import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch

from corestream import ReplayMemory, learners
from corestream.errors import ConfigError
from corestream.learners.registry import METHODS, Method
from corestream.learners.settings import CoresetSettings, Settings

NAMES = (
    "finetune multitask ewc stable-sgd a-gem er-reservoir uniform icarl kmeans-features kmeans-embedding "
    "grad-matching gss er-mir bilevel ocs input-ocs feat-ocs uniform+ocs mc-sgd mc-sgd+ocs"
)
BENCHMARKS = (
    "rotated-digits",
    "rotated-mnist",
    "permuted-mnist",
    "split-cifar100",
    "split-tinyimagenet",
    "multi-datasets",
    "folder:/x",
)


def stream(tasks=3, classes=(0, 1)):
    return SimpleNamespace(num_tasks=tasks, classes_of=lambda task: classes)


def test_the_methods_of_the_paper_are_there_with_one_line_each():
    assert set(NAMES.split()) <= set(learners.names())
    for name in learners.names():
        assert 20 <= len(learners.describe(name)) <= 90
        assert "\n" not in learners.describe(name)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("protocol", learners.PROTOCOLS)
def test_every_method_has_settings_on_every_benchmark(benchmark, protocol):
    for name in learners.names():
        for imbalanced in (False, True):
            settings = learners.settings(name, benchmark, imbalanced=imbalanced, protocol=protocol)
            assert isinstance(settings, METHODS[name].settings)


def test_an_unknown_method_is_answered_with_the_nearest(model):
    with pytest.raises(
        ConfigError, match=r"unknown method 'icarll'; did you mean 'icarl'\? known are finetune, "
    ):
        learners.settings("icarll", "rotated-mnist")
    with pytest.raises(ConfigError, match="unknown method 'sgd'"):
        learners.describe("sgd")


def test_an_unknown_benchmark_or_protocol_is_named():
    with pytest.raises(ConfigError, match="no settings for benchmark 'mnist'; known are rotated-digits"):
        learners.settings("ocs", "mnist")
    with pytest.raises(ConfigError, match="protocol is 'mine'; allowed are 'paper'"):
        learners.settings("ocs", "rotated-mnist", protocol="mine")


def test_settings_of_another_method_are_refused(model):
    with pytest.raises(ConfigError, match="settings is a Settings; ocs takes OCSSettings"):
        learners.build("ocs", model, learners.settings("finetune", "rotated-mnist"), stream=stream())


@pytest.mark.parametrize(
    ("method", "capacity", "policy", "stream", "why"),
    [
        ("uniform", 9, "quota", stream(2, range(10)), "at least 10 is needed, for a task has 10 classes"),
        ("ocs", 19, "quota", stream(20), "at least 20 is needed, for there are 20 tasks"),
        ("icarl", 5, "per-class", stream(3), "at least 6 is needed, for the tasks have 6 classes together"),
    ],
)
def test_a_memory_that_is_too_small_is_refused_at_once(model, method, capacity, policy, stream, why):
    settings = replace(learners.settings(method, "rotated-mnist"), capacity=capacity, policy=policy)
    with pytest.raises(ConfigError, match=f"capacity is {capacity}; {why}"):
        learners.build(method, model, settings, stream=stream)


def test_the_settings_reach_the_learner_its_optimiser_and_its_memory(model):
    settings = replace(learners.settings("ocs", "rotated-mnist"), tau=7.0, lam=0.3, capacity=33)
    learner = learners.build("ocs", model, settings, stream=stream(), seed=5)
    assert (learner.tau, learner.lam, learner.k, learner.lr_decay) == (7.0, 0.3, 10, 0.75)
    assert learner.optimizer.defaults["lr"] == 0.005
    assert learner.optimizer.defaults["momentum"] == 0.8
    assert (learner.memory.capacity, learner.memory.policy, learner.memory.balance) == (33, "quota", "class")
    assert learner.generator.initial_seed() == 5


@pytest.mark.parametrize(("capacity", "each"), [(6, 1), (11, 1), (12, 2)])
def test_as_many_samples_of_each_class_balance_every_method(model, capacity, each):
    settings = replace(learners.settings("uniform", "rotated-mnist"), policy="per-class", capacity=capacity)
    learner = learners.build("uniform", model, settings, stream=stream())
    for _ in range(3):
        learner.observe(torch.randn(9, 4), torch.tensor([0] * 7 + [1, 1]))
        learner.end_task()
    assert learner.memory.targets.view(3, -1).sort(1).values.tolist() == [[0] * each + [1] * each] * 3


def test_a_variant_is_like_a_method_that_there_is():
    with pytest.raises(ConfigError, match="did you mean 'ocs'"):
        learners.register(replace(METHODS["ocs"], name="mine", like="osc"))
    assert "mine" not in METHODS


def test_a_variant_has_the_values_of_the_method_it_is_like(monkeypatch):
    known = learners.METHODS["ocs"]
    mine = replace(known, name="mine", like="ocs")
    other = replace(known, name="other")
    for method in (mine, other):
        monkeypatch.setitem(learners.METHODS, method.name, method)
    for benchmark in ("rotated-mnist", "split-cifar100"):
        assert learners.settings("mine", benchmark) == learners.settings("ocs", benchmark)
        assert learners.settings("other", benchmark).batch_size == 10


class Own(learners.Coreset):
    """Chooses what a test hands it."""

    chosen = None

    def choose(self, samples, k):
        return self.chosen


OWN = Method("own", "a method of one's own", Own, CoresetSettings, "shares", "class")


@pytest.mark.parametrize(
    "method",
    [replace(OWN, name="ocs"), replace(METHODS["ocs"], summary="mine"), replace(OWN, name="uniform")],
)
def test_a_method_that_there_is_is_not_replaced(method):
    before = dict(METHODS)
    with pytest.raises(ConfigError, match=f"there is a method '{method.name}' already"):
        learners.register(method)
    assert before == METHODS


def test_the_same_method_may_be_registered_again_and_its_file_imported_twice(monkeypatch, tmp_path):
    monkeypatch.setitem(METHODS, "own", OWN)
    learners.register(METHODS["ocs"])
    learners.register(replace(OWN, summary="written anew"))
    assert METHODS["own"].summary == "written anew"
    for name in ("once", "twice"):  # a file under two names makes two classes
        module = ModuleType(name)
        module.__file__ = __file__
        monkeypatch.setitem(sys.modules, name, module)
        twin = type("Own", (Own,), {"__module__": name, "__qualname__": "Own"})
        learners.register(replace(OWN, learner=twin))
        assert METHODS["own"].learner is twin
    elsewhere = type("Own", (Own,), {"__module__": "elsewhere"})
    with pytest.raises(ConfigError, match="there is a method 'own' already"):
        learners.register(replace(OWN, learner=elsewhere))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"keeps": "share"}, "keeps of method 'own' is 'share'; allowed is 'shares' or 'reservoir' or None"),
        ({"balance": "task"}, "balance of method 'own' is 'task'; allowed is 'class' or None"),
    ],
)
def test_a_memory_is_kept_in_a_way_that_there_is(wrong, message):
    with pytest.raises(ConfigError, match=message):
        learners.register(replace(OWN, **wrong))


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (None, "NoneType"),
        ([0, 1], "list"),
        (torch.ones(3), r"a tensor of torch\.float32 and shape \[3\]"),
        (torch.tensor([0, 9]), "the place 9"),
        (torch.tensor([-2]), "the place -2"),
    ],
)
def test_what_choose_returns_is_checked(model, sgd, chosen, words):
    learner = Own(model, sgd(model), ReplayMemory(6))
    learner.chosen = chosen
    learner.observe(torch.randn(9, 4), torch.arange(9) % 3)
    with pytest.raises(
        (TypeError, ValueError),
        match=f"choose returned {words}; expected a tensor of places among the 9 candidates",
    ):
        learner.end_task()


def test_choose_may_leave_places_empty(model, sgd):
    learner = Own(model, sgd(model), ReplayMemory(6))
    learner.chosen = torch.tensor([4, -1])
    learner.observe(torch.randn(9, 4), torch.arange(9) % 3)
    learner.end_task()
    assert len(learner.memory) == 6


@pytest.mark.parametrize(
    ("keeps", "settings", "said"),
    [
        (None, Settings, r"unexpected keyword argument 'k'; it needs __init__\(self, model, optimizer, \*, "),
        (
            "shares",
            CoresetSettings,
            r"too many positional .*; it needs __init__\(self, model, optimizer, memory, \*",
        ),
    ],
)
def test_a_class_that_does_not_take_its_settings_is_named_with_the_cure(
    model, monkeypatch, keeps, settings, said
):
    class Bare(learners.Learner):
        pass

    monkeypatch.setitem(METHODS, "bare", Method("bare", "a learner without __init__", Bare, settings, keeps))
    with pytest.raises(
        ConfigError, match=f"method 'bare': Bare does not take what it is built with: .*{said}"
    ):
        learners.build("bare", model, settings(), stream=stream())
