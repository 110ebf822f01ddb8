import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "hugging_face.py"


def test_it_remembers_the_earlier_topics():
    pytest.importorskip("transformers", reason="needs transformers")
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=300, check=True)
    assert [line.split()[3] >= "0.90" for line in done.stdout.splitlines()] == [True] * 3
