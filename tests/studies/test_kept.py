import base64
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from corestream.errors import RunError
from corestream.studies.kept import kept_pictures, memory_of, picture_uri
from corestream.studies.report import write_report


def test_the_kept_pictures_are_those_in_the_runs_folder(make_result: Any) -> None:
    result = make_result("ocs")
    pictures = kept_pictures(result)
    assert pictures is not None
    assert torch.equal(pictures, memory_of(result)["inputs"])


def test_a_method_without_memory_keeps_no_pictures(make_result: Any) -> None:
    assert kept_pictures(make_result("finetune")) is None


def test_inputs_that_are_no_pictures_are_not_shown(make_result: Any) -> None:
    result = make_result("ocs")
    save_file({"inputs": torch.rand(5, 7), "targets": torch.arange(5)}, result.folder / "memory.safetensors")
    assert kept_pictures(result) is None


def test_a_damaged_memory_is_named_and_the_page_is_written_all_the_same(
    make_result: Any, tmp_path: Path
) -> None:
    result = make_result("ocs")
    (result.folder / "memory.safetensors").write_bytes(b"torn")
    with pytest.raises(RunError, match=r"memory\.safetensors is damaged"):
        memory_of(result)
    page = write_report([result], tmp_path / "report.html").read_text()
    assert "memory.safetensors is damaged" in page
    assert "<img" not in page


def test_a_data_address_is_a_picture() -> None:
    uri = picture_uri(torch.rand(4, 3, 8, 8), per_side=2, zoom=2)
    kind, _, content = uri.partition(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        assert picture.size == (34, 34)
