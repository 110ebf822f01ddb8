"""Functions that a compiler may take: the same numbers with it, and without it where it fails."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from corestream import OCS, ReplayMemory
from corestream.fusing import fusible, fusing
from corestream.selection.criteria import Criteria
from corestream.selection.scores import weigh

TRACED = "aot_eager"  # everything of torch.compile but the kernels, which need a compiler for the machine


def learned(backend: str | None) -> list[Tensor]:
    """The parameters and the memory after three tasks, with a sample that is not finite and batches of two sizes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    memory = ReplayMemory(12)
    learner = OCS(model, optimizer, memory, k=3, warm_start=2, candidates=20, generator=generator)
    with fusing(backend):
        for _ in range(3):
            learner.start_sweep()
            for number in range(6):
                x, y = torch.randn(10 + number % 2, 8), torch.randint(4, (10 + number % 2,))
                if number == 3:
                    x[2] = torch.nan
                learner.observe(x, y)
            learner.end_task()
    return [*(p.detach() for p in model.parameters()), memory.inputs, memory.targets]


def test_ocs_learns_the_same_where_its_small_operations_are_compiled() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing may fall back
        traced = learned(TRACED)
    for mine, plain in zip(traced, learned(None), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-5, atol=1e-6)


def test_a_study_of_many_settings_stays_compiled() -> None:
    criteria = Criteria(
        *torch.randn(3, 50, generator=torch.Generator().manual_seed(0)).unbind(), torch.arange(50) < 49
    )
    tenths = [tenth / 10 for tenth in range(11)]
    with warnings.catch_warnings(), fusing(TRACED):
        warnings.simplefilter("error")  # torch.compile gives up after eight compilations of one function
        for alpha in tenths:
            for affinity in (0.0, 1.0):
                total = weigh(criteria, 1000.0, (alpha, 1 - alpha, affinity)).total
                weighed = alpha * criteria[0] + (1 - alpha) * criteria[1] + 1000.0 * affinity * criteria[2]
                assert total[-1] == -torch.inf
                assert torch.allclose(total[:-1], weighed[:-1])


def test_what_cannot_be_compiled_runs_as_it_is_and_says_so_once() -> None:
    @fusible
    def looks(x: Tensor) -> Tensor:
        return x + 1 if bool(x.sum() > 0) else x

    with fusing(TRACED), pytest.warns(UserWarning, match="looks runs unfused"):
        assert looks(torch.ones(2)).tolist() == [2, 2]
    with fusing(TRACED), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert looks(-torch.ones(2)).tolist() == [-1, -1]


def test_a_function_within_another_is_compiled_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **how: compiled.append(f.__name__) or usual(f, **how))

    @fusible
    def inner(x: Tensor) -> Tensor:
        return x + 1

    @fusible
    def outer(x: Tensor) -> Tensor:
        return 2 * inner(x)

    with fusing(TRACED), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outer(torch.ones(2)).tolist() == [4, 4]
        assert compiled == ["outer"]
        assert inner(torch.ones(2)).tolist() == [2, 2]


def test_an_error_of_the_function_itself_comes_through() -> None:
    @fusible
    def fails(x: Any) -> Any:
        raise LookupError("of its own")

    with fusing(TRACED), pytest.raises(LookupError, match="of its own"):
        fails(torch.ones(1))


def test_nothing_is_compiled_for_a_tensor_without_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **how: compiled.append(f) or usual(f, **how))

    @fusible
    def joined(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y]) + 1

    with fusing(TRACED):
        assert joined(torch.ones(2), torch.ones(0)).tolist() == [2, 2]
        assert compiled == []
        assert joined(torch.ones(2), torch.ones(1)).tolist() == [2, 2, 2]
    assert len(compiled) == 1
