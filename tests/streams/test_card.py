import numpy as np
import torch

from corestream.streams import benchmark, from_tensors
from corestream.streams.card import GAP, MARGIN, contact_sheet


def test_a_row_per_task_shows_its_first_samples() -> None:
    stream = benchmark("rotated-digits", tasks=3)
    sheet = np.asarray(contact_sheet(stream, columns=5))
    side = 48 + GAP
    assert sheet.shape == (3 * side, MARGIN + 5 * side, 3)
    first = stream[1].train.batches(0)
    shown = sheet[side : side + 48 : 3, MARGIN : MARGIN + 48 : 3, 0]
    assert np.array_equal(shown, (next(first)[0][0, 0] * 255).round().numpy().astype(np.uint8))


def test_values_beyond_the_unit_range_are_stretched() -> None:
    values = torch.linspace(-3, 3, 40).repeat_interleave(16).view(40, 1, 4, 4)
    sheet = np.asarray(contact_sheet(from_tensors(values, torch.arange(40) % 2), columns=30))
    tiles = sheet[:48, MARGIN:, 0]
    assert tiles.min() == 0
    assert tiles.max() == 255


def test_a_vector_is_a_line() -> None:
    sheet = contact_sheet(from_tensors(torch.rand(40, 12), torch.arange(40) % 2), columns=5)
    assert sheet.size == (MARGIN + 5 * (48 + GAP), 4 + GAP)


def test_a_task_smaller_than_a_row_is_shown_whole() -> None:
    stream = from_tensors(torch.rand(8, 4, 4), torch.arange(8) % 2)
    assert contact_sheet(stream, columns=16).width == MARGIN + 16 * (48 + GAP)
