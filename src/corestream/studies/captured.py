"""What a run does on a card, captured in CUDA graphs: a step, a row of steps, what a method repeats, the tests of a task."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from corestream.fusing import can_fuse, fusible, fusing
from corestream.repeating import Work, repeating
from corestream.streams import Batches
from corestream.studies.metrics import Evaluation, evaluate
from corestream.studies.run import Run

WARM_UP = 2  # ordinary steps of a shape before one is captured: by then all state that lasts has been made
TRIES = 2  # captures that may find the card full: of a task's steps, of a run's tests

Launch = Callable[[torch.cuda.CUDAGraph, int], None]


def launch_all(graph: torch.cuda.CUDAGraph, times: int) -> None:
    for _ in range(times):
        graph.replay()


class LaneContext:
    """Where a lane works: its CUDA stream, a state of torch's own generator that no other lane draws from, memory for its graphs.

    `launch` is how a graph is launched many times, now or before the lane's next part.
    """

    def __init__(self, stream: torch.cuda.Stream | None, seed: int, launch: Launch = launch_all) -> None:
        self.stream, self._launch = stream, launch
        self._cpu_state = torch.Generator().manual_seed(seed).get_state()
        if self.stream is not None:
            torch.cuda.init()  # torch's own generators are there only afterwards
            self.generator = torch.Generator("cuda").manual_seed(seed)
            self._backend = "inductor" if can_fuse() else None
            self._pool: Any = None
            self._keeper: torch.cuda.CUDAGraph | None = None
            self._repeated: tuple[torch.cuda.CUDAGraph, Work] | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        if self.stream is None:
            outside = torch.get_rng_state()
            torch.set_rng_state(self._cpu_state)
            try:
                yield
            finally:
                self._cpu_state = torch.get_rng_state()
                torch.set_rng_state(outside)
            return
        default = torch.cuda.default_generators[torch.cuda.current_device()]
        before = default.graphsafe_get_state()
        self.take_generator()
        try:
            with torch.cuda.stream(self.stream), fusing(self._backend), repeating(self._repeat):
                yield
        finally:
            default.graphsafe_set_state(before)

    def take_generator(self) -> None:
        """Torch's own generator on the card draws what this lane's does."""
        default = torch.cuda.default_generators[torch.cuda.current_device()]
        default.graphsafe_set_state(self.generator.graphsafe_get_state())

    @property
    def pool(self) -> Any:
        """One for all graphs, which are replayed one after the other.

        A pool goes with its last graph, and its memory only when the card is full: a small one that is never replayed keeps it.
        """
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            try:
                self._keeper = _capture(lambda: torch.zeros((), device="cuda"), self)
            except BaseException:
                self.forget_pool()
                raise
        return self._pool

    def forget_pool(self) -> None:
        """Let go of the memory that graphs share: it is freed with the last of them, and the next capture makes another."""
        self._pool = self._keeper = self._repeated = None

    def _repeat(self, work: Work, times: int, generators: list[torch.Generator], wait: bool = False) -> None:
        """Run WARM_UP times as it is, which makes all state that lasts; then captured and launched, or looped where that fails."""
        inside = self.stream is not None and torch.cuda.is_current_stream_capturing()
        ordinary = times if inside else min(WARM_UP, times)
        for _ in range(ordinary):
            work()
        if ordinary == times:
            return
        graph, full, reason = None, False, ""
        try:
            graph = _capture(work, self, *generators)
        except RuntimeError as error:
            full, reason = isinstance(error, torch.OutOfMemoryError), f"{type(error).__name__}: {error}"
        if graph is None:  # only here, where the error no longer holds on to the broken capture
            name = getattr(work, "__qualname__", work)
            warnings.warn(f"{name} is repeated uncaptured: {reason.splitlines()[0]}", stacklevel=3)
            if full:
                self.forget_pool()  # with what the capture had taken
                make_room()
            for _ in range(ordinary, times):
                work()
        elif wait:
            launch_all(graph, times - ordinary)
            torch.cuda.current_stream().synchronize()  # the graph goes now
        else:
            # graph and work are kept until their launches are over: the next task's, before which the lane waits, takes their place
            self._repeated = graph, work
            self._launch(graph, times - ordinary)

    def is_busy(self) -> bool:
        return self.stream is not None and not self.stream.query()


class Cursor:
    """Where in the open sweep's order the next batch begins, known to the card alone."""

    def __init__(self, run: Run) -> None:
        self._order = run.order.clone()
        self._at = torch.full((), run.position.batch * run.batch_size, device=self._order.device)
        self._span = torch.arange(run.batch_size, device=self._order.device)

    def next_places(self, size: int) -> Tensor:
        return _advance(self._order, self._at, self._span[:size])

    def follow(self, run: Run) -> None:
        """A new sweep: its order, from its start."""
        self._order.copy_(run.order)
        self._at.fill_(run.position.batch * run.batch_size)


@fusible
def _advance(order: Tensor, at: Tensor, span: Tensor) -> Tensor:
    places = order.index_select(0, at + span)
    at.add_(span.shape[0])
    return places


class CapturedStep:
    """A run's step, or a row of them, as a CUDA graph, from the choice of the batch on."""

    def __init__(self, run: Run, context: LaneContext, cursor: Cursor, size: int, steps: int = 1) -> None:
        self.steps = steps

        def work() -> None:
            for _ in range(steps):
                run.observe(run.batch_at(cursor.next_places(size)))

        self.graph = _capture(work, context, run.learner.generator)


class CapturedEvaluations:
    """The test of one batch as a CUDA graph from its shape's second time on, launched for every such batch of every test set.

    Parameters stay where they are; a batch is copied to where the graph looks for it.
    """

    def __init__(self, context: LaneContext) -> None:
        self._context = context
        self._held: dict[int, list[tuple[Tensor, ...]]] = {}  # by the test set's number
        self._graphs: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]] = {}
        self._seen: set[tuple[torch.Size, ...]] = set()
        self._counts: Tensor | None = None  # [right and all, classes], of the test set at hand
        self._tries_left = TRIES

    def __call__(self, model: nn.Module, number: int, test: Batches, classes: int) -> Evaluation:
        batches = self._held.get(number)
        if batches is None:
            batches = list(test)
            if self._tries_left:  # a card that was full keeps nothing more
                self._held[number] = batches
        if self._counts is None:
            self._counts = torch.zeros(2, classes, dtype=torch.long, device=batches[0][0].device)
        self._counts.zero_()
        for batch in batches:
            shapes = tuple(part.shape for part in batch)
            if shapes in self._seen and self._captured(model, shapes, batch):
                graph, inputs = self._graphs[shapes]
                for slot, part in zip(inputs, batch, strict=True):
                    slot.copy_(part)
                graph.replay()
            else:
                self._seen.add(shapes)
                self._count(model, batch)
        correct, total = self._counts.clone()
        return Evaluation(correct, total)

    def _count(self, model: nn.Module, batch: tuple[Tensor, ...]) -> None:
        assert self._counts is not None
        found = evaluate(model, [batch], self._counts.shape[1])
        self._counts.add_(torch.stack([found.correct, found.total]))

    def _captured(self, model: nn.Module, shapes: tuple[torch.Size, ...], batch: tuple[Tensor, ...]) -> bool:
        """Whether there is a graph for batches of these shapes, made now if the card has room."""
        if shapes in self._graphs or not self._tries_left:
            return shapes in self._graphs
        inputs = tuple(part.clone() for part in batch)
        try:
            self._graphs[shapes] = _capture(lambda: self._count(model, inputs), self._context), inputs
            return True
        except RuntimeError as error:
            full = isinstance(error, torch.OutOfMemoryError)
        inputs = ()  # what a broken capture held is given back with the rest
        self._tries_left = self._tries_left - 1 if full else 0
        if full:
            make_room()
        return False


def make_room() -> None:
    """Give back what torch keeps for other runs, or for those that are over, which it cannot in the midst of a capture."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _capture(
    work: Callable[[], object], context: LaneContext, *generators: torch.Generator
) -> torch.cuda.CUDAGraph:
    """What the work launches, to be launched again and again; an error in it leaves the generators as they were."""
    graph, pool = torch.cuda.CUDAGraph(), context.pool
    for generator in generators:
        graph.register_generator_state(generator)
    drawn_from = (*generators, context.generator)
    before = [generator.clone_state() for generator in drawn_from]
    collects = gc.isenabled()
    gc.disable()  # what goes out of use would be freed in the midst of it
    try:
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        work()
        graph.capture_end()
    except BaseException:
        if not _ends(graph):
            # it never began, or CUDA gave it up: torch's allocator and its generators go on waiting for its end
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
            context.forget_pool()
            for generator, state in zip(drawn_from, before, strict=True):
                generator.graphsafe_set_state(state)
            context.take_generator()
        raise
    finally:
        if collects:
            gc.enable()
    return graph


def _ends(graph: torch.cuda.CUDAGraph) -> bool:
    """Whether a capture whose work broke off could be brought to an end."""
    try:
        graph.capture_end()
    except RuntimeError:
        return False
    return True
