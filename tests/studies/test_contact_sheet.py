import torch

from corestream.studies.contact_sheet import contact_sheet, visible


def test_a_contact_sheet_shows_every_picture_once() -> None:
    pictures = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 6, 6) / 4
    sheet = contact_sheet(pictures, per_side=2)
    assert sheet.shape == (13, 13)
    assert {float(value) for value in sheet.flat} == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_normalised_pictures_are_stretched_and_others_left() -> None:
    plain = torch.rand(6, 3, 4, 4) * 0.5
    assert torch.equal(visible(plain), plain)
    shifted = visible(torch.randn(6, 1, 8, 8) * 3)
    assert shifted.min() == 0
    assert shifted.max() == 1
