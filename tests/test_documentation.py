"""Every code block of README.md and docs/ is run, page by page and in order, in a folder that has nothing but the kept `results`.

A block's first word is its language. `sh slow` blocks make the paper's study: they are run by `make test-all`, cut down to two
tasks of the embedded digits, because in full they take hours and downloads. `sh own` blocks name a file of the reader's own, which the
test writes from what the pages show; they are cut down too. Of `paper all`, which is a `text`, each part is run.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from corestream.studies.catalogue import INCREMENTAL, MEASURED, STUDIES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
KNOWN = ("python", "sh", "sh slow", "sh own", "toml", "text")
CUT_DOWN = "--benchmark rotated-digits --tasks 2 --seeds 1 --offline --device cpu --out runs"
SEARCHES = [name for name, study in STUDIES.items() if study.seeds]
# `corestream` commands are called inside the page's process, which has torch loaded already
PRELUDE = """
import shlex, subprocess, tomllib
from corestream.cli import app
page = {"__name__": "page"}
def sh(text):
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["corestream"]:
            assert not app(words[1:], standalone_mode=False), line
        elif words:
            subprocess.run(line, shell=True, check=True)
"""


@dataclass(frozen=True)
class Block:
    kind: str
    body: str

    @property
    def call(self) -> str:
        """The line of the page's program that runs this block."""
        if self.kind == "python":
            return f"exec({self.body!r}, page)"
        if self.kind == "toml":
            return f"assert tomllib.loads({self.body!r})"
        if self.kind == "sh":  # `make` sets up environments of its own: it is only asked what it would do
            return f"sh({re.sub(r'^make ', f'make -n -C {ROOT} ', self.body, flags=re.MULTILINE)!r})"
        return ""


def blocks(page: Path) -> list[Block]:
    return [Block(found["info"].strip(), found["body"]) for found in FENCE.finditer(page.read_text())]


def slow_commands() -> list[str]:
    """The study's commands, each once."""
    bodies = [block.body for page in PAGES for block in blocks(page) if block.kind == "sh slow"]
    lines = (line.partition("#")[0].strip() for body in bodies for line in body.splitlines())
    return list(dict.fromkeys(line for line in lines if line))


def run(command: list[str], folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    found = blocks(page)
    for block in found:
        assert block.kind in KNOWN, f"{page.name}: a block of {block.kind!r}; known are {', '.join(KNOWN)}"
    if any(block.call for block in found):
        (tmp_path / "results").symlink_to(ROOT / "results")
        program = "\n".join([PRELUDE, *(block.call for block in found)])
        run([sys.executable, "-c", program], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("command", slow_commands())
def test_a_command_of_the_study_runs(command: str, tmp_path: Path) -> None:
    rest = CUT_DOWN
    if command.split()[2] in MEASURED:
        rest = "--benchmark rotated-digits --device cpu --out runs"
    if (
        command.split()[2] in SEARCHES
    ):  # they have seeds of their own, and many rows, not all of them for these digits
        rows = STUDIES[command.split()[2]].rows
        rest = f"{CUT_DOWN.replace('--seeds 1', '')} --methods '{rows[0].label},{rows[-2].label}'"
    if "class-incremental" in command:  # its other rows need tasks with classes of their own
        rest = f"{CUT_DOWN} --methods {','.join(INCREMENTAL)}"
    if "partial-gradients" in command:  # blocks of a ResNet: needs its own images
        if "CORESTREAM_DATA" not in os.environ:
            pytest.skip("CORESTREAM_DATA names no folder with TinyImageNet")
        rest = "--methods '[1]' --tasks 1 --seeds 1 --offline --device cpu --out runs"
    run(["sh", "-c", f"{command} {rest}"], tmp_path)


def own_commands() -> list[tuple[Path, str]]:
    """With the page that each stands on."""
    return [
        (page, line)
        for page in PAGES
        for block in blocks(page)
        if block.kind == "sh own"
        for line in block.body.splitlines()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "command"), own_commands(), ids=[f"{page.name}: {line}" for page, line in own_commands()]
)
def test_a_command_with_a_file_of_the_readers_own_runs(page: Path, command: str, tmp_path: Path) -> None:
    of_streams = [b.body for b in blocks(ROOT / "docs/streams.md") if 'BENCHMARKS["mine"]' in b.body]
    method = (ROOT / "examples/new_method.py").read_text()
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/new_method.py").write_text(method)
    (tmp_path / "mine.py").write_text("\n".join([method.replace('"hardest"', '"mine"'), *of_streams]))
    studies = [block.body for block in blocks(page) if block.kind == "toml" and "methods =" in block.body]
    (tmp_path / "study.toml").write_text("\n".join(studies))
    command = re.sub(
        r"--(seeds|tasks|benchmark|results) \S+|,ocs:best", "", command
    )  # the digits have no such row
    study = "--benchmark rotated-digits" if " paper " in command else ""
    run(["sh", "-c", f"{command} {study} --seeds 1 --tasks 1 --offline --device cpu --out runs"], tmp_path)


@pytest.mark.parametrize("place", [*PAGES, *EXAMPLES], ids=lambda place: place.name)
def test_corestream_is_imported_before_torch(place: Path) -> None:
    """Otherwise its setting for busy machines comes too late."""
    bodies = (
        [place.read_text()]
        if place in EXAMPLES
        else [block.body for block in blocks(place) if block.kind == "python"]
    )
    imported = [
        name for body in bodies for name in re.findall(r"^(?:import|from) (corestream|torch)\b", body, re.M)
    ]
    assert "torch" not in imported[:1], f"{place.name} imports torch first"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in PAGES[1:]:
        assert f"docs/{page.name}" in readme, f"{page.name} is not linked"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
