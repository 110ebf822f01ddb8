"""The benchmarks by name. A new one is one new file and one line here."""

from corestream.streams.benchmarks.registry import Benchmark
from corestream.streams.benchmarks.rotated import rotated_digits

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "rotated-digits",
            "scikit-learn's digits, 10 tasks of 18°; needs no download",
            rotated_digits,
            options={"angles": ("steps", "random"), "full_classes": ("random", "fixed")},
        ),
    )
}
