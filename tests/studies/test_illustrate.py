from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from corestream.errors import RunError
from corestream.studies.config import make_config
from corestream.studies.illustrate import illustrate, note_on
from corestream.studies.results import Result
from corestream.studies.tables import Table, make_cell

METRICS = ("accuracy", "forgetting")


def table(results: dict[str, list[Result]], expected: int = 1) -> Table:
    cells = {(row, "rotated-digits"): make_cell(found, expected=expected) for row, found in results.items()}
    return Table("figure", "F", tuple(results), ("rotated-digits",), METRICS, cells)


def real(make_result: Any, method: str) -> Result:
    """A result whose configuration makes its stream, with a memory of that stream's size."""
    result = make_result(method)
    inputs, targets = torch.rand(12, 1, 16, 16), torch.arange(12) % 6
    save_file({"inputs": inputs, "targets": targets}, result.folder / "memory.safetensors")
    config = make_config("rotated-digits", "ocs", tasks=2).to_dict()
    return Result(config, result.accuracy, folder=result.folder)


def test_tsne_shows_what_was_kept_over_the_stream(make_result: Any) -> None:
    figure = illustrate("t-SNE", table({"ocs": [real(make_result, "ocs")]}))
    (panel,) = figure.axes
    assert panel.get_title() == "rotated-digits\nocs: 12 kept, 6 classes"
    stream, kept = panel.collections
    assert len(kept.get_offsets()) == 12
    assert len(stream.get_offsets()) == 2000


def test_tsne_without_any_memory_says_so(make_result: Any) -> None:
    with pytest.raises(RunError, match="no run has kept"):
        illustrate("t-SNE", table({"finetune": [make_result("finetune")]}))


def test_kept_pictures_leave_a_blank_where_a_run_is_missing(make_result: Any) -> None:
    figure = illustrate("kept pictures", table({"ocs": [make_result("ocs")], "uniform": []}))
    assert [len(panel.images) for panel in figure.axes] == [1, 0]


def test_the_note_tells_samples_cuts_and_holes(make_result: Any) -> None:
    cut = make_result("ocs", tasks=3)
    sampled = Result({**cut.config, "tasks": 3}, cut.accuracy, files_note="svhn: a sample")
    assert note_on(table({"ocs": [sampled]}, expected=2)) == (
        "only the first 3 tasks; svhn: a sample; 1 run is not in it"
    )
