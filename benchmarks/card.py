"""What a step of OCS costs on a CUDA card, for one run and for several side by side, and where the time goes.

    python benchmarks/card.py [--data-dir DIR] [--lanes 1 7 15 30] [--kernels] [--whole 15]

Real runs on Rotated MNIST with the paper's settings, in their third task so that the memory is full; their captured steps, which
`corestream compare … --device cuda` replays, are launched in turn by a clock. `--kernels` lists the kernels of one step in their
order, `--whole N` also times N whole runs (120,000 steps each), from the first line to the last result.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from corestream.studies import lockstep
from corestream.studies.config import RunConfig, make_config
from corestream.studies.drive import Options
from corestream.studies.environment import set_up_card
from corestream.studies.lockstep import Lane, make_runs_together
from corestream.studies.pool import Watcher
from corestream.studies.pump import Pump
from corestream.studies.stopping import StopRequest

STEPS = 400  # timed, of the 600 a sweep has
THIRD = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
            configs = [config(seed) for seed in range(arguments.whole)]
            make_runs_together(configs, Path(folder) / "whole", lanes=arguments.whole, options=options)
            print(f"{arguments.whole} whole runs: {time.perf_counter() - start:.1f} s\n")
        lanes = captured_lanes(max(arguments.lanes), Path(folder), options)
        print("| steps of one graph | side by side | host µs | µs for all |\n|---|---|---|---|")
        for in_row in (False, True):
            for count in arguments.lanes:
                steps, host, all_done = time_rounds(lanes[:count], in_row)
                print(f"| {steps} | {count} | {1e6 * host:.0f} | {1e6 * all_done:.0f} |", flush=True)
        if arguments.kernels:
            list_kernels(lanes[0])


def config(seed: int, **given: Any) -> RunConfig:
    return make_config("rotated-mnist", "ocs", seed=seed, device="cuda", **given)


def captured_lanes(count: int, folder: Path, options: Options) -> list[Lane]:
    """Runs with one sweep a task, led into their third task until its step and its row are captured."""
    lockstep.LONG = 1  # a row is worth its capture in a long task alone
    lanes = []
    with StopRequest() as stop, Pump() as pump:
        for seed in range(count):
            short = config(seed, tasks=THIRD + 1, overrides={"sweeps": 1})
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
    graphs = [lane._row if in_row else lane._captured[100] for lane in lanes]
    steps = graphs[0].steps
    for warm in (True, False):
        for lane in lanes:
            lane._cursor._at.zero_()
        torch.cuda.synchronize()
        rounds = 1 if warm else STEPS // steps
        start = time.perf_counter()
        for _ in range(rounds):
            for lane, captured in zip(lanes, graphs, strict=True):
                with torch.cuda.stream(lane.stream):
                    captured.graph.replay()
        host = time.perf_counter() - start
        torch.cuda.synchronize()
        all_done = time.perf_counter() - start
    return steps, host / (rounds * steps), all_done / (rounds * steps)


def list_kernels(lane: Lane) -> None:
    lane._cursor._at.zero_()
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile,
        torch.cuda.stream(lane.stream),
    ):
        lane._captured[100].graph.replay()
        torch.cuda.synchronize()
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    kernels = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    print(f"\n{len(kernels)} kernels of one step: µs from its start, µs, name")
    for kernel in kernels:
        begun = kernel.time_range.start - kernels[0].time_range.start
        print(f"{begun:8.1f} {kernel.time_range.end - kernel.time_range.start:6.1f} {kernel.name[:100]}")


if __name__ == "__main__":
    main()
