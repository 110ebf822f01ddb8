"""The contact sheet of a stream: a row of training samples per task, as one picture."""

from itertools import islice

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from corestream.streams.stream import Stream, Task

MARGIN = 90
GAP = 2


def contact_sheet(stream: Stream, columns: int = 16) -> Image.Image:
    """The first samples of each task's first epoch, so that imbalance and noise show as they arrive; a vector is a line."""
    shape = stream.input_shape if len(stream.input_shape) == 3 else (1, 1, *stream.input_shape)
    rows = [_row(task, columns, shape) for task in stream]
    height, width = shape[1:]
    zoom = max(1, round(48 / max(height, width)))
    step_x, step_y = width * zoom + GAP, height * zoom + GAP
    sheet = Image.new("RGB", (MARGIN + columns * step_x, len(rows) * step_y), "white")
    draw = ImageDraw.Draw(sheet)
    for y, (task, pictures) in enumerate(zip(stream, rows, strict=True)):
        draw.text((4, y * step_y + step_y // 2 - 6), task.title[:14] or f"task {y + 1}", fill="black")
        for x, picture in enumerate(pictures):
            tile = Image.fromarray(picture).resize((width * zoom, height * zoom), Image.Resampling.NEAREST)
            sheet.paste(tile, (MARGIN + x * step_x, y * step_y))
    return sheet


def _row(task: Task, columns: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Samples as [H, W, 3] bytes; values beyond [0, 1], as after normalisation, are stretched over the grey scale."""
    batches = task.train.with_batch_size(columns).with_indices()
    batches.drop_last = False
    x, *_, index = next(islice(batches, 1))
    noise = task.train.is_noise[index]
    clean = x[~noise] if bool((~noise).any()) else x
    low, high = (
        (0.0, 1.0) if clean.min() >= 0 and clean.max() <= 1 else (float(clean.min()), float(clean.max()))
    )
    return [_bytes((image - low) / max(high - low, 1e-9)) for image in x.view(-1, *shape)]


def _bytes(image: Tensor) -> np.ndarray:
    colour = image[:3] if image.shape[0] >= 3 else image[:1].expand(3, -1, -1)
    return (colour.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().contiguous().numpy()
