"""Made-up results that look like real ones: a matrix, what was trained on, what was kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from corestream.studies.results import Result

MakeResult = Callable[..., Result]


@pytest.fixture
def make_result(tmp_path: Path) -> MakeResult:
    def make(
        method: str = "ocs", seed: int = 0, *, level: float = 0.8, tasks: int = 4, **more: Any
    ) -> Result:
        status, note = more.pop("status", "done"), more.pop("note", "")
        folder = tmp_path / f"run-{method}-{seed}-{'-'.join(map(str, more.values()))}".replace("/", "_")
        folder.mkdir()
        keeps = method != "finetune"
        if keeps and status == "done":
            inputs, targets = torch.rand(20, 1, 8, 8), torch.arange(20) % 10
            parts = {"inputs": inputs, "targets": targets, "tasks": torch.zeros_like(targets)}
            save_file(parts, folder / "memory.safetensors")
        matrix = [
            [level - 0.02 * (t - i) + seed / 100 if i <= t else None for i in range(tasks)]
            for t in range(tasks)
        ]
        kept = {"samples": 20, "classes": {str(c): 2 for c in range(10)}, "tasks": {"0": 20}, "noise": 0.25}
        accuracy: dict[str, Any] = {
            "matrix": matrix,
            "average_accuracy": sum(row for row in matrix[-1] if row) / tasks,
            "forgetting": 0.06,
            "trained": [{"samples": 100, "distinct": 50, "noise": 0.1, "classes": {"0": 100}}] * tasks,
            "memory": [kept if keeps else None] * tasks,
        }
        config = {"benchmark": "rotated-digits", "method": method, "seed": seed, **more}
        found = accuracy if status == "done" else {}
        return Result(config, found, status, note, device="cpu", seconds=60.0, folder=folder)

    return make
