"""Pillow's pictures as bytes: how the modes become grey or colour."""

import numpy as np
from PIL import Image


def in_bytes(image: Image.Image) -> Image.Image:
    """Grey of 16 bits as grey of 8, where Pillow's conversion would make nearly all of it white."""
    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def in_colour(image: Image.Image) -> Image.Image:
    """RGB; what is transparent shows a white ground."""
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode} have no known range; save it with 8 or 16 bits")
    image = in_bytes(image)
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        ground = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(ground, image.convert("RGBA"))
    return image.convert("RGB")
