"""docs/api.md has every public name, and the arguments and defaults that the code has."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import corestream
from corestream import learners
from corestream.memory import Reservoir
from corestream.streams import from_tensors

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "api.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (\S.*?) \|", re.MULTILINE)
TABLED = [
    corestream.OCS,
    corestream.Learner,
    corestream.score,
    corestream.per_sample_gradients,
    corestream.ReplayMemory,
    corestream.benchmark,
    from_tensors,
]
METHODS = [
    kind
    for kind in (getattr(learners, name) for name in learners.__all__)
    if inspect.isclass(kind) and issubclass(kind, learners.Learner) and kind not in TABLED
]
NOTHING = inspect.Parameter.empty


def section(name: str) -> str:
    """From the heading of a name to the next one."""
    found = re.search(rf"^##+ `{name}`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/api.md has no heading for {name}"
    return found[1]


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.items()
    return {name: p.default for name, p in parameters if p.kind not in variable}


@pytest.mark.parametrize("name", [*corestream.__all__, *learners.__all__])
def test_every_public_name_is_there(name: str) -> None:
    assert re.search(rf"`{name}\b", PAGE), f"docs/api.md does not have {name}"


@pytest.mark.parametrize("function", TABLED, ids=lambda function: function.__name__)
def test_every_argument_is_there_with_its_default(function: Callable[..., Any]) -> None:
    rows = dict(ROW.findall(section(function.__name__)))
    given = {
        name: "–" if default is NOTHING else f"`{default!r}`" for name, default in arguments(function).items()
    }
    assert {name: rows.get(name) for name in given} == given


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_the_table_of_methods_names_the_arguments_that_each_adds(kind: type) -> None:
    row = re.search(rf"^\| [^|]*`{kind.__name__}`[^|]* \| `(\w+)` \|([^|]*)\|", PAGE, re.MULTILINE)
    assert row, f"docs/api.md has no row for {kind.__name__}"
    base = arguments(getattr(learners, row[1]))
    added = {name: default for name, default in arguments(kind).items() if name not in {*base, "memory"}}
    assert set(re.findall(r"`(.*?)`", row[2])) == {f"{name}={default!r}" for name, default in added.items()}


@pytest.mark.parametrize(
    "kind",
    [corestream.ReplayMemory, corestream.Learner, corestream.Samples, Reservoir],
    ids=lambda kind: kind.__name__,
)
def test_every_method_and_property_is_there(kind: type) -> None:
    public = [name for name in vars(kind) if not name.startswith("_")]
    assert not [name for name in public if not re.search(rf"[`.]{name}\b", PAGE)]
