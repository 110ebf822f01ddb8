"""What a step of OCS costs on a CUDA card, for one run and for several side by side, and where the time goes.

    python benchmarks/card.py [--benchmark split-cifar100] [--data-dir DIR] [--lanes 1 7 15 30] [--kernels] [--whole 15]

Real runs with the paper's settings, in their third task so that the memory is full; their captured steps, which
`corestream compare … --device cuda` replays, are launched in turn by a clock. `--kernels` lists the kernels of one step in their
order, and what those of each name take together; `--whole N` also times N whole runs, from the first line to the last result.
"""

import argparse
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from corestream.studies import lockstep
from corestream.studies.captured import CapturedStep
from corestream.studies.config import RunConfig, make_config
from corestream.studies.drive import Options
from corestream.studies.environment import set_up_card
from corestream.studies.lockstep import Lane, make_runs_together
from corestream.studies.pool import Watcher
from corestream.studies.pump import Pump
from corestream.studies.stopping import StopRequest

THIRD = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--benchmark", default="rotated-mnist")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 7, 15, 30])
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--whole", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch finds no CUDA card here")
    set_up_card()
    options = Options(data_dir=arguments.data_dir)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.whole:  # first: it is to find nothing compiled but what is on disk
            start = time.perf_counter()
            configs = [config(arguments.benchmark, seed) for seed in range(arguments.whole)]
            make_runs_together(configs, Path(folder) / "whole", lanes=arguments.whole, options=options)
            print(f"{arguments.whole} whole runs: {time.perf_counter() - start:.1f} s\n")
        lanes = captured_lanes(arguments.benchmark, max(arguments.lanes), Path(folder), options)
        print("| steps of one graph | side by side | host µs | µs for all |\n|---|---|---|---|")
        for in_row in (False, True):
            for count in arguments.lanes:
                steps, host, all_done = time_rounds(lanes[:count], in_row)
                print(f"| {steps} | {count} | {1e6 * host:.0f} | {1e6 * all_done:.0f} |", flush=True)
        if arguments.kernels:
            list_kernels(lanes[0])


def config(benchmark: str, seed: int, **given: Any) -> RunConfig:
    return make_config(benchmark, "ocs", seed=seed, device="cuda", protocol="paper", **given)


def captured_lanes(benchmark: str, count: int, folder: Path, options: Options) -> list[Lane]:
    """Runs with one sweep a task, led into their third task until its step and its row are captured."""
    lockstep.ROW_PAYS_FROM = 1  # a row is worth its capture in a long task alone
    lanes = []
    with StopRequest() as stop, Pump() as pump:
        for seed in range(count):
            short = config(benchmark, seed, tasks=THIRD + 1, overrides={"sweeps": 1})
            lanes.append(Lane(short, folder, options, stop, Watcher(), pump, torch.cuda.Stream()))
            lanes[-1].begin()
        for lane in lanes:
            while lane._row is None or lane._run is None or lane._run.position.task < THIRD:
                if lane.waits_for_card():
                    time.sleep(1e-4)
                elif (outcome := lane.guarded(lane.step)) is not None:
                    raise RuntimeError(outcome.error)
            while lane.waits_for_card():
                time.sleep(1e-4)
    torch.cuda.synchronize()
    return lanes


def time_rounds(lanes: list[Lane], in_row: bool) -> tuple[int, float, float]:
    """Steps of one launch, and seconds a step of all lanes: until the host has launched them, and until the card has made them."""
    graphs = [lane._row if in_row else single_step(lane) for lane in lanes]
    steps, of_sweep = graphs[0].steps, len(lanes[0]._run._train)
    for warm in (True, False):
        for lane in lanes:
            lane._cursor._at.zero_()
        torch.cuda.synchronize()
        rounds = 1 if warm else of_sweep // 2 // steps
        start = time.perf_counter()
        for _ in range(rounds):
            for lane, captured in zip(lanes, graphs, strict=True):
                with torch.cuda.stream(lane.stream):
                    captured.graph.replay()
        host = time.perf_counter() - start
        torch.cuda.synchronize()
        all_done = time.perf_counter() - start
    return steps, host / (rounds * steps), all_done / (rounds * steps)


def single_step(lane: Lane) -> CapturedStep:
    return lane._captured[lane._run.batch_size]


def list_kernels(lane: Lane) -> None:
    lane._cursor._at.zero_()
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile,
        torch.cuda.stream(lane.stream),
    ):
        single_step(lane).graph.replay()
        torch.cuda.synchronize()
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    kernels = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    print(f"\n{len(kernels)} kernels of one step: µs from its start, µs, name")
    for kernel in kernels:
        begun = kernel.time_range.start - kernels[0].time_range.start
        print(f"{begun:8.1f} {microseconds(kernel):6.1f} {kernel.name[:100]}")
    by_name = defaultdict[str, list[float]](list)
    for kernel in kernels:
        by_name[kernel.name[:100]].append(microseconds(kernel))
    print("\nµs in all, kernels, name")
    for name, times in sorted(by_name.items(), key=lambda one: -sum(one[1])):
        print(f"{sum(times):8.1f} {len(times):5} {name}")


def microseconds(kernel: Any) -> float:
    return float(kernel.time_range.end - kernel.time_range.start)


if __name__ == "__main__":
    main()
