"""What selection costs: one step beside plain SGD over the same samples, and beside other ways to per-sample gradients.

    python benchmarks/step.py [--rounds 15] [--rows mlp,resnet] [--threads 2] [--growth PLOT.png]

Contestants take turns, round by round, so that a busy machine is unfair to none; medians are shown, and ratios are medians of
the ratios within a round. Peak memory is the most that torch holds at once during a step, beyond the model and the data.

- plain: forward, backward and SGD over the batch and the reference;
- score, observe: corestream's selection alone, and the whole step of OCS with selection and update;
- loop, vmap, opacus, torchjd: the Gram matrix of the same samples' gradients by one backward a sample, by torch.func, and by the
  two libraries of the extra `peers`.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.profiler import ProfilerActivity, profile

import corestream
from corestream.models import MLP, ResNet18

Step = Callable[[], object]
Batch = tuple[Tensor, Tensor]
per_sample_loss = nn.CrossEntropyLoss(reduction="none")


@dataclass(frozen=True)
class Row:
    """A model, its batch and how many reference samples go with it."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    reference: int = 0
    contestants: tuple[str, ...] | None = None  # all, where none are named

    def data(self, count: int) -> Batch:
        return torch.rand(count, *self.shape), torch.randint(10, (count,))


class Attention(nn.Module):
    """Multi-head self-attention written from linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A post-norm transformer layer like torch's, on `Attention`."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention, self.first, self.second = (
            Attention(width, heads),
            nn.Linear(width, hidden),
            nn.Linear(hidden, width),
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.second(self.first(x).relu()))


class Encoder(nn.Module):
    """Four layers over 64 tokens of width 128, then a linear head on their mean."""

    def __init__(self, own_attention: bool, width: int = 128, heads: int = 4, hidden: int = 2048) -> None:
        super().__init__()
        if own_attention:
            self.layers: nn.Module = nn.Sequential(*(Layer(width, heads, hidden) for _ in range(4)))
        else:
            layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(1))


def mlp() -> nn.Module:
    return MLP((1, 28, 28), 10, width=256, dropout=0.2)


def resnet(norm: str) -> Callable[[], nn.Module]:
    return lambda: ResNet18((3, 32, 32), 10, width=20, norm=norm, form="standard")


OWN = ("plain", "score", "observe")
ROWS = {
    "mlp, no reference": Row(mlp, (1, 28, 28), 100),
    "mlp, reference 10": Row(mlp, (1, 28, 28), 100, 10),
    "mlp, reference 200": Row(mlp, (1, 28, 28), 100, 200),
    "resnet, groupnorm": Row(resnet("group"), (3, 32, 32), 20),
    "resnet, batchnorm": Row(resnet("batch"), (3, 32, 32), 20),
    # a loop takes half a minute a step here, and the others refuse BatchNorm
    "resnet, batchnorm, reference 100": Row(resnet("batch"), (3, 32, 32), 20, 100, OWN),
    "transformer, torch": Row(lambda: Encoder(own_attention=False), (64, 128), 16),
    "transformer, linear": Row(lambda: Encoder(own_attention=True), (64, 128), 16),
}


def contestant(row: Row, name: str) -> Step:
    """A closure that makes one step."""
    torch.manual_seed(0)
    model = row.model()
    batch, reference = row.data(row.batch), row.data(row.reference) if row.reference else None
    together = (
        batch if reference is None else tuple(torch.cat(pair) for pair in zip(batch, reference, strict=True))
    )
    return CONTESTANTS[name](model, batch, reference, together)


def plain(model: nn.Module, batch: Batch, reference: Batch | None, together: Batch) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.8)

    def step() -> None:
        optimizer.zero_grad()
        per_sample_loss(model(together[0]), together[1]).mean().backward()
        optimizer.step()

    return step


def score(model: nn.Module, batch: Batch, reference: Batch | None, together: Batch) -> Step:
    return lambda: corestream.score(model, None, batch, reference)


def observe(model: nn.Module, batch: Batch, reference: Batch | None, together: Batch) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.8)
    memory = corestream.ReplayMemory(max(10, len(together[1])))
    if reference is not None:
        memory.replace(corestream.Samples.of(*reference))
    learner = corestream.OCS(model, optimizer, memory)
    return lambda: learner.observe(*batch)


def loop(model: nn.Module, batch: Batch, reference: Batch | None, together: Batch) -> Step:
    parameters = list(model.parameters())

    def step() -> Tensor:
        losses = per_sample_loss(model(together[0]), together[1])
        rows = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses]
        matrix = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
        return matrix @ matrix.T

    return step


def with_vmap(model: nn.Module, batch: Batch, reference: Batch | None, together: Batch) -> Step:
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, values, (x[None],)), y[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")

    def step() -> Tensor:
        rows = gradients(parameters, *together)
        matrix = torch.cat([part.flatten(1) for part in rows.values()], dim=1)
        return matrix @ matrix.T

    return step


def opacus(model: nn.Module, batch: Batch, reference: Batch | None, together: Batch) -> Step:
    from opacus.grad_sample import GradSampleModule

    wrapped = GradSampleModule(model, loss_reduction="sum")

    def step() -> Tensor:
        wrapped.zero_grad(set_to_none=True)
        per_sample_loss(wrapped(together[0]), together[1]).sum().backward()
        matrix = torch.cat([p.grad_sample.flatten(1) for p in model.parameters()], dim=1)
        return matrix @ matrix.T

    return step


def torchjd(model: nn.Module, batch: Batch, reference: Batch | None, together: Batch) -> Step:
    from torchjd.autogram import Engine

    engine = Engine(model, batch_dim=0)
    return lambda: engine.compute_gramian(per_sample_loss(model(together[0]), together[1]))


CONTESTANTS = {
    "plain": plain,
    "score": score,
    "observe": observe,
    "loop": loop,
    "vmap": with_vmap,
    "opacus": opacus,
    "torchjd": torchjd,
}


def able(row: Row, names: Iterable[str]) -> dict[str, Step]:
    """Those of the contestants that can do this model at all, warmed up."""
    found = {}
    for name in names:
        try:
            step = contestant(row, name)
            step(), step()
            found[name] = step
        except Exception as error:
            print(f"{name} cannot: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    return found


def timed(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds a step of each contestant, round by round: after one step to get the caches back, the median of a few."""
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            seconds = []
            for _ in range(5):
                start = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - start)
                if sum(seconds) > 0.5:
                    break
            spent[name].append(statistics.median(seconds))
    return spent


def peak(step: Step) -> float:
    """The most MiB that torch holds at once during a step, beyond what it held before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    assert profiler.profiler is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = itertools.accumulate(
        event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())
    )
    return max(held, default=0) / 2**20


def available(name: str) -> bool:
    try:
        return name not in ("opacus", "torchjd") or bool(__import__(name))
    except ImportError:
        return False


def table(titles: list[str], rounds: int, threads: int) -> None:
    print(f"torch {torch.__version__}, {threads} threads, medians of {rounds} rounds\n")
    print("| model | contestant | ms | ratio to plain | peak MiB |")
    print("|---|---|---|---|---|")
    for title in titles:
        row = ROWS[title]
        names = [name for name in row.contestants or CONTESTANTS if available(name)]
        steps = able(row, names)
        spent = timed(steps, rounds)
        for name, step in steps.items():
            ratios = [own / base for own, base in zip(spent[name], spent["plain"], strict=True)]
            milliseconds = statistics.median(spent[name]) * 1e3
            memory = peak(step)
            print(
                f"| {title} | {name} | {milliseconds:.2f} | {statistics.median(ratios):.2f} | {memory:.0f} |",
                flush=True,
            )
        parameters = sum(p.numel() for p in row.model().parameters())
        print(f"| | B × P is {row.batch * parameters * 4 / 2**20:.0f} MiB | | | |")


def growth(rounds: int, plot: str) -> None:
    """How the cost grows with the batch, on the MLP."""
    sizes = [16, 32, 64, 128, 256, 512, 1024]
    print(
        "\n| batch | plain ms | score ms | observe ms | score / plain | observe / plain |\n|---|---|---|---|---|---|"
    )
    curves: dict[str, list[float]] = {"plain": [], "score": [], "observe": []}
    for size in sizes:
        row = Row(mlp, (1, 28, 28), size)
        spent = timed(able(row, curves), rounds)
        for name, seconds in spent.items():
            curves[name].append(statistics.median(seconds) * 1e3)
        base, scored, observed = (curves[name][-1] for name in curves)
        print(
            f"| {size} | {base:.2f} | {scored:.2f} | {observed:.2f} | {scored / base:.2f} | {observed / base:.2f} |"
        )
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.5))
    for name, values in curves.items():
        axes.plot(sizes, values, marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="samples in the batch", ylabel="milliseconds a step")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(plot, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", default="", help="parts of the rows' names, with commas between")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--growth", metavar="PLOT", help="also measure batches of 16 to 1024 on the MLP, and draw them here"
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    wanted = [part.strip() for part in given.rows.split(",")]
    table([title for title in ROWS if any(part in title for part in wanted)], given.rounds, given.threads)
    if given.growth:
        growth(given.rounds, given.growth)


if __name__ == "__main__":
    main()
