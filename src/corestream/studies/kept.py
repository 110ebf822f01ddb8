"""What a finished run kept in its memory (memory.safetensors in its folder)."""

import base64
import io

import numpy as np
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from torch import Tensor

from corestream.errors import RunError
from corestream.studies.contact_sheet import contact_sheet
from corestream.studies.results import Result


def read_memory(result: Result) -> dict[str, Tensor] | None:
    """`inputs`, `targets`, `tasks` and where known `indices`; None for a method or place that keeps none."""
    path = None if result.folder is None else result.folder / "memory.safetensors"
    if path is None or not path.exists():
        return None
    try:
        return dict(parse_tensors(path.read_bytes()))
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} is damaged ({error}); remove {path.parent} to make this run again") from error


def kept_pictures(result: Result) -> Tensor | None:
    """The kept inputs where they are pictures, [n, C, H, W]."""
    memory = read_memory(result)
    if memory is None or "inputs" not in memory or memory["inputs"].dim() != 4:
        return None
    return memory["inputs"]


def picture_uri(pictures: Tensor, *, per_side: int = 6, zoom: int = 3) -> str:
    """A contact sheet as a data: address for a page that has no other files."""
    sheet = (np.clip(contact_sheet(pictures, per_side), 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(sheet)
    picture = picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST)
    out = io.BytesIO()
    picture.save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")
