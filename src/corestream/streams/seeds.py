"""Every random choice of a stream comes from one seed and a purpose, and is the same on every machine."""

import hashlib

import numpy as np


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A generator for one purpose: `generator(0, "rotated-mnist", 3, "noise")`."""
    words = "\x1f".join([str(int(seed)), *(str(word) for word in purpose)])
    text = words.encode(errors="surrogateescape")  # a folder's name need not be UTF-8
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(text).digest()[:16], "little")))
