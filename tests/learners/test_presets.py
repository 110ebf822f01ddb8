from corestream.learners.presets import preset
from corestream.learners.settings import CoresetSettings, OCSSettings, Settings
from corestream.streams import BENCHMARKS, Benchmark


def values(kind, method, benchmark, imbalanced=False, noisy=False, scenario=None, protocol="paper"):
    stream = {"imbalanced": imbalanced, "noisy": noisy, "scenario": scenario}
    return preset(kind, method, benchmark, **stream, protocol=protocol)


def test_ocs_has_the_papers_values_on_rotated_mnist():
    balanced = values(OCSSettings, "ocs", "rotated-mnist")
    assert (balanced.batch_size, balanced.k, balanced.sweeps, balanced.tau) == (100, 10, 10, 1000)
    assert (balanced.lr, balanced.lr_decay, balanced.momentum, balanced.dropout) == (0.005, 0.75, 0.8, 0.2)
    assert (balanced.capacity, balanced.replay, balanced.candidates) == (200, 10, 1000)
    imbalanced = values(OCSSettings, "ocs", "rotated-mnist", imbalanced=True)
    assert imbalanced.lr_decay == 0.8


def test_lambda_is_the_one_that_was_searched_for():
    for method, kind, lam in (("ocs", OCSSettings, 5), ("uniform", CoresetSettings, 10)):
        assert values(kind, method, "rotated-mnist").lam == lam
        assert values(kind, method, "rotated-mnist", imbalanced=True).lam == lam
        assert values(kind, method, "rotated-mnist", protocol="ocs-schedule").lam == lam
    assert values(OCSSettings, "feat-ocs", "rotated-mnist").lam == 5


def test_ocs_has_the_papers_values_on_split_cifar100():
    balanced = values(OCSSettings, "ocs", "split-cifar100")
    assert (balanced.batch_size, balanced.k, balanced.sweeps, balanced.tau) == (20, 10, 2, 1000)
    assert (balanced.lr_decay, balanced.capacity, balanced.lam, balanced.score_mode) == (
        0.9,
        100,
        1.0,
        "eval",
    )
    assert balanced.lr == 0.15 * 0.85
    assert (balanced.network, balanced.width, balanced.test_batch_size) == ("resnet18", 20, 100)
    imbalanced = values(OCSSettings, "ocs", "split-cifar100", imbalanced=True)
    assert (imbalanced.lr_decay, imbalanced.tau, imbalanced.lam) == (0.875, 10, 1.0)
    assert values(OCSSettings, "ocs", "split-cifar100", scenario="class").capacity == 1000
    assert values(OCSSettings, "ocs", "split-cifar100", protocol="best").tau == 1


def test_a_noisy_stream_has_settings_of_its_own_where_they_were_searched():
    best = {"protocol": "best"}
    noisy = values(OCSSettings, "ocs", "rotated-mnist", noisy=True, **best)
    assert (noisy.weights, noisy.tau, noisy.fill) == ((1, 0, 1), 1000, "random")
    assert values(OCSSettings, "ocs", "rotated-mnist", **best).fill == "bilevel"
    imbalanced = values(OCSSettings, "ocs", "rotated-mnist", imbalanced=True, **best)
    assert values(OCSSettings, "ocs", "rotated-mnist", imbalanced=True, noisy=True, **best) == imbalanced
    balanced = values(OCSSettings, "ocs", "split-cifar100", **best)
    assert values(OCSSettings, "ocs", "split-cifar100", noisy=True, **best) == balanced
    assert values(OCSSettings, "ocs", "rotated-mnist", noisy=True) == values(
        OCSSettings, "ocs", "rotated-mnist"
    )


def test_multi_datasets_keeps_one_sample_per_class():
    settings = values(OCSSettings, "ocs", "multi-datasets")
    assert (settings.capacity, settings.policy, settings.lam) == (83, "per-class", 1.0)


def test_the_baselines_train_with_batches_of_ten_in_one_sweep():
    for benchmark in ("rotated-mnist", "split-cifar100", "multi-datasets"):
        settings = values(CoresetSettings, "uniform", benchmark)
        assert (settings.batch_size, settings.sweeps, settings.k) == (10, 1, None)


def test_the_ocs_schedule_gives_a_baseline_its_updates_and_rates():
    settings = values(Settings, "finetune", "rotated-mnist", protocol="ocs-schedule")
    assert (settings.batch_size, settings.k, settings.sweeps) == (100, 10, 10)
    assert (settings.lr, settings.lr_decay) == (0.005, 0.75)
    assert values(Settings, "finetune", "rotated-mnist").lr_decay == 1


def test_on_rotated_digits_everyone_trains_on_five_of_fifty():
    for method in ("finetune", "uniform", "ocs"):
        settings = values(CoresetSettings, method, "rotated-digits")
        assert (settings.batch_size, settings.k, settings.sweeps, settings.lr) == (50, 5, 10, 0.02)
        assert (settings.capacity, settings.replay, settings.lr_decay) == (100, 5, 0.9)


def test_a_folder_of_pictures_has_settings():
    assert values(Settings, "finetune", "folder:/pictures").norm == "group"


def test_on_a_benchmark_of_ones_own_ocs_has_something_to_choose_from(monkeypatch):
    for name, own in (("mine", {}), ("small", {"batch_size": 16, "k": 4})):
        benchmark = Benchmark(name, "for the test", lambda request: None, settings=own)
        monkeypatch.setitem(BENCHMARKS, name, benchmark)
    ocs, uniform = values(OCSSettings, "ocs", "mine"), values(CoresetSettings, "uniform", "mine")
    assert (ocs.batch_size, ocs.k, ocs.sweeps) == (20, 10, 2)
    assert (uniform.batch_size, uniform.k, uniform.sweeps) == (10, None, 1)
    ocs = values(OCSSettings, "ocs", "small")  # what it says itself comes first
    assert (ocs.batch_size, ocs.k, ocs.sweeps) == (16, 4, 2)


def test_on_a_benchmark_of_ones_own_a_resnet_has_a_resnets_width(monkeypatch):
    for name, own in (
        ("images", {"network": "resnet18"}),
        ("wide", {"network": "resnet18", "width": 32}),
        ("flat", {}),
    ):
        benchmark = Benchmark(name, "for the test", lambda request: None, settings=own)
        monkeypatch.setitem(BENCHMARKS, name, benchmark)
    widths = [values(Settings, "finetune", name).width for name in ("images", "wide", "flat")]
    assert widths == [20, 32, 256]
