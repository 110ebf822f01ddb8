"""What is captured, with a stand-in for the card's graphs that does the work again at each launch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from corestream.studies import captured
from corestream.studies.metrics import evaluate


class Again:
    """Like a graph: what the work reads and writes stays where it was when captured."""

    made = 0

    def __init__(self, work: Callable[[], object], context: Any) -> None:
        type(self).made += 1
        self.replay = work
        work()  # a capture leaves the counts as they are: what this adds must not show


class Coupled(nn.Module):
    """Its answers depend on which samples are tested together."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        out: Tensor = self.norm(self.linear(x)) + task[:, None]
        return out


def batches(sizes: list[int], seed: int) -> list[tuple[Tensor, ...]]:
    draw = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(size, 4, generator=draw),
            torch.randint(3, (size,), generator=draw),
            torch.full((size,), seed),
        )
        for size in sizes
    ]


def test_the_tests_of_all_tasks_share_a_graph_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[Tensor] = []

    def capture(work: Callable[[], object], context: Any) -> Again:
        assert tests._counts is not None
        before = tests._counts.clone()
        graph = Again(work, context)
        tests._counts.copy_(before)
        counts.append(before)
        return graph

    monkeypatch.setattr(captured, "_capture", capture)
    Again.made = 0
    torch.manual_seed(0)
    model = Coupled()
    tests = captured.CapturedEvaluations(context=None)  # type: ignore[arg-type]
    sets: list[Any] = [batches([8, 8, 8, 5], 0), batches([8, 8, 5], 1), batches([8], 2)]
    held = []
    for _ in range(3):
        for number, one in enumerate(sets):
            found, expected = tests(model, number, one, 3), evaluate(model, one, 3)
            held.append((found.correct, expected.correct))
            assert torch.equal(found.total, expected.total)
        with torch.no_grad():
            model.linear.weight.mul_(-1.5)  # learning goes on in the same place
    assert all(torch.equal(found, expected) for found, expected in held)  # later tests left them alone
    assert Again.made == 2  # one for eight samples, one for five


@pytest.mark.parametrize("times", [1, 2, 3, 10])
def test_repeated_work_is_captured_after_two_ordinary_times(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    done: list[str] = []

    class Graph:
        def replay(self) -> None:
            done.append("launched")

    monkeypatch.setattr(captured, "_capture", lambda work, context, *generators: Graph())
    captured.LaneContext(None, 0)._repeat(lambda: done.append("ordinary"), times, [])
    assert done == (["ordinary"] * 2 + ["launched"] * 8)[:times]


def test_work_that_is_waited_for_is_launched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Graph:
        def replay(self) -> None:
            done.append("launched")

    class Stream:
        def synchronize(self) -> None:
            done.append("over")

    def later(graph: object, times: int) -> None:
        done.append("left to another thread")

    monkeypatch.setattr(captured, "_capture", lambda work, context, *generators: Graph())
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    captured.LaneContext(None, 0, later)._repeat(lambda: done.append("ordinary"), 4, [], wait=True)
    assert done == ["ordinary"] * 2 + ["launched"] * 2 + ["over"]


def test_work_that_cannot_be_captured_is_repeated_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def broken(work: Callable[[], object], context: Any, *generators: torch.Generator) -> None:
        raise RuntimeError("it looks at a value")

    monkeypatch.setattr(captured, "_capture", broken)
    monkeypatch.setattr(captured, "make_room", lambda: None)
    with pytest.warns(UserWarning, match="uncaptured: RuntimeError: it looks at a value"):
        captured.LaneContext(None, 0)._repeat(lambda: done.append(0), 5, [])
    assert len(done) == 5


def test_where_the_card_is_full_tests_go_on_without_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def capture(work: Callable[[], object], context: Any) -> Again:
        tried.append(1)
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(captured, "_capture", capture)
    monkeypatch.setattr(captured, "make_room", lambda: None)
    torch.manual_seed(0)
    model, one = Coupled(), batches([8, 8, 8, 8, 8], 0)
    tests = captured.CapturedEvaluations(context=None)  # type: ignore[arg-type]
    assert torch.equal(tests(model, 0, one, 3).correct, evaluate(model, one, 3).correct)  # type: ignore[arg-type]
    assert len(tried) == captured.TRIES
    for number in (1, 2):
        tests(model, number, one, 3)  # type: ignore[arg-type]
    assert list(tests._held) == [0]  # nothing more is kept on it
