import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "new_method.py"


def test_a_new_method_is_at_most_forty_lines():
    assert len(EXAMPLE.read_text().splitlines()) <= 40


def test_it_learns_three_tasks():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=120, check=True)
    shown = [line.split(": ") for line in done.stdout.splitlines()]
    assert [task for task, _ in shown] == ["task 0", "task 1", "task 2"]
    assert all(float(accuracy.rstrip("%")) > 50 for _, accuracy in shown)
