import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["own_tensors", "own_dataset", "own_folder"])
def test_the_example_runs_and_learns(name: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    last = [line for line in capsys.readouterr().out.splitlines() if line.startswith("after")][-1]
    accuracies = [float(word) for word in last.replace(":", "").split() if "." in word]
    assert accuracies
    assert min(accuracies) > 0.5  # chance is far below
