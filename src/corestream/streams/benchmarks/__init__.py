"""The benchmarks by name. A new one is one new file and one line here."""

from corestream.streams.benchmarks.multi import multi_datasets
from corestream.streams.benchmarks.permuted import permuted_mnist
from corestream.streams.benchmarks.registry import Benchmark, Choice, Number
from corestream.streams.benchmarks.rotated import rotated_digits, rotated_mnist
from corestream.streams.benchmarks.split import split_cifar100, split_tinyimagenet

ANGLES = Choice("steps", "random")
SPLIT: dict[str, Choice | Number] = {
    "classes_per_task": Number(None, whole=True),
    "class_order": Choice("label", "random"),
    "imbalance_factor": Number(0.1, most=1.0, needs="imbalanced"),
}

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "rotated-digits",
            "scikit-learn's digits, 10 tasks of 18°; needs no download",
            rotated_digits,
            options={"angles": ANGLES, "full_classes": Choice("random", "fixed", needs="imbalanced")},
        ),
        Benchmark(
            "rotated-mnist",
            "MNIST, 20 tasks of 9°",
            rotated_mnist,
            options={
                "angles": ANGLES,
                "full_classes": Choice("fixed", "random", needs="imbalanced"),
                "noise_style": Choice("float", "bytes", needs="noise"),
            },
        ),
        Benchmark(
            "permuted-mnist",
            "MNIST, 20 tasks with their own order of the pixels",
            permuted_mnist,
            options={"full_classes": Choice("fixed", "random", needs="imbalanced")},
        ),
        Benchmark(
            "split-cifar100",
            "CIFAR-100, 20 tasks of 5 classes (class scenario: 5 of 20)",
            split_cifar100,
            scenarios=("task", "class"),
            options=SPLIT,
        ),
        Benchmark(
            "multi-datasets",
            "MNIST, Fashion-MNIST, notMNIST, traffic signs, SVHN: 5 tasks, 83 classes",
            multi_datasets,
            scenarios=("task", "class"),
            options={"imbalance_factor": Number(0.1, most=1.0, needs="imbalanced")},
        ),
        Benchmark(
            "split-tinyimagenet",
            "TinyImageNet, 20 tasks of 10 classes (class scenario: 5 of 40)",
            split_tinyimagenet,
            scenarios=("task", "class"),
            options=SPLIT,
        ),
    )
}

BUILT_IN = frozenset(BENCHMARKS)  # the others come from files of the user's own
