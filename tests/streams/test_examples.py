import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["own_tensors", "own_dataset", "own_folder"])
def test_the_example_runs_and_learns(name: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", [name])
    torch.manual_seed(
        0
    )  # the example's network is drawn from torch's own, wherever the tests before have left it
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    last = [line for line in capsys.readouterr().out.splitlines() if line.startswith("after")][-1]
    accuracies = [float(word) for word in last.replace(":", "").split() if "." in word]
    assert accuracies
    assert min(accuracies) > 0.5  # a new folder's name draws another order; chance is far below
