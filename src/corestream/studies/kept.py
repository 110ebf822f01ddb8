"""What a finished run kept in its memory (memory.safetensors in its folder)."""

import base64
import io

import numpy as np
from PIL import Image
from torch import Tensor

from corestream.studies.contact_sheet import contact_sheet
from corestream.studies.execute import read_memory
from corestream.studies.results import Result


def memory_of(result: Result) -> dict[str, Tensor]:
    """`inputs`, `targets`, `tasks` and `ids`; empty for a method that keeps none, and for a result without its run's folder."""
    return {} if result.folder is None else read_memory(result.folder)


def kept_pictures(result: Result) -> Tensor | None:
    """The kept inputs where they are pictures, [n, C, H, W]."""
    inputs = memory_of(result).get("inputs")
    return inputs if inputs is not None and inputs.dim() == 4 else None


def picture_uri(pictures: Tensor, *, per_side: int = 6, zoom: int = 3) -> str:
    """A contact sheet as a data: address for a page that has no other files."""
    sheet = (np.clip(contact_sheet(pictures, per_side), 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(sheet)
    picture = picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST)
    out = io.BytesIO()
    picture.save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")
