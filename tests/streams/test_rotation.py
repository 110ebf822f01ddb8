import numpy as np
import pytest
import scipy.ndimage
import torch
from PIL import Image

from corestream.streams.rotation import rotate

ANGLES = [
    9.0 * t for t in range(20) if t != 15
]  # at 135° pixels lie halfway between two, and libraries differ


@pytest.fixture
def images() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(1, 256, (6, 1, 28, 28), dtype=np.uint8))


@pytest.mark.parametrize("degrees", ANGLES)
def test_nearest_rotation_is_pillows_byte_for_byte(images: torch.Tensor, degrees: float) -> None:
    turned = rotate(images, degrees)
    assert turned.dtype == torch.uint8
    for mine, original in zip(turned[:, 0], images[:, 0], strict=True):
        assert np.array_equal(mine.numpy(), np.asarray(Image.fromarray(original.numpy()).rotate(degrees)))


@pytest.mark.parametrize("degrees", [0.0, 18.0, 45.0, 90.0, 162.0, 33.3])
def test_bilinear_rotation_is_scipys(images: torch.Tensor, degrees: float) -> None:
    floats = images.float() / 255
    turned = rotate(floats, degrees, "bilinear")
    for mine, original in zip(turned[:, 0], floats[:, 0], strict=True):
        theirs = scipy.ndimage.rotate(original.numpy(), degrees, reshape=False, order=1, mode="grid-constant")
        np.testing.assert_allclose(mine.numpy(), theirs, atol=1e-6)


def test_a_half_turn_reverses_both_axes_exactly(images: torch.Tensor) -> None:
    assert torch.equal(rotate(images, 180), images.flip(-1, -2))


def test_no_turn_returns_a_copy(images: torch.Tensor) -> None:
    turned = rotate(images, 360)
    turned.zero_()
    assert images.min() > 0


def test_bilinear_rotation_of_bytes_is_refused(images: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="floating-point"):
        rotate(images, 9, "bilinear")


def test_an_unknown_interpolation_names_the_known(images: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="nearest"):
        rotate(images, 9, "cubic")
