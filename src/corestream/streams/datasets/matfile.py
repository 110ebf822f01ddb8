"""Numeric arrays of a MATLAB 5 file. Declared sizes are checked before anything of that size is made."""

import math
import zlib
from collections.abc import Iterator

import numpy as np

MAX_BYTES = 1 << 29
COMPRESSED, MATRIX = 15, 14
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def arrays(data: bytes) -> dict[str, np.ndarray]:
    """Every numeric array of the file by name; other kinds of variables are passed over."""
    if len(data) < 128 or data[126:128] != b"IM":
        raise ValueError("not a little-endian MATLAB 5 file")
    found = {}
    for kind, element in _elements(memoryview(data)[128:]):
        if kind == COMPRESSED:
            unpacker = zlib.decompressobj()
            unpacked = unpacker.decompress(element, MAX_BYTES)
            if not unpacker.eof:
                raise ValueError("a compressed variable is cut off or too large")
            (kind, element), *_ = _elements(memoryview(unpacked))
        if kind == MATRIX and (array := _numeric(element)) is not None:
            found[array[0]] = array[1]
    return found


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(type, content) one after the other; content of four bytes or less may lie inside the tag."""
    place = 0
    while len(data) - place >= 8:
        kind, size = np.frombuffer(data[place : place + 8], "<u4").tolist()
        if small := kind >> 16:
            kind, size, start, end = kind & 0xFFFF, small, place + 4, place + 8
        else:
            start = place + 8
            end = start + size if kind == COMPRESSED else start + -(-size // 8) * 8
        if size > len(data) - start or (small > 4):
            raise ValueError(f"an element of {size} bytes where {len(data) - start} are left")
        yield kind, data[start : start + size]
        place = end


def _numeric(matrix: memoryview) -> tuple[str, np.ndarray] | None:
    parts = list(_elements(matrix))
    if len(parts) < 4:
        raise ValueError("a variable without its four parts")
    (_, flags), (_, sides), (_, name), (kind, values) = parts[:4]
    if not 6 <= bytes(flags[:1] or b"\0")[0] <= 15 or kind not in TYPES:
        return None
    shape = tuple(np.frombuffer(sides, "<i4").tolist())
    flat = np.frombuffer(values, "<" + TYPES[kind])
    if any(side < 0 for side in shape) or math.prod(shape) != len(flat):
        raise ValueError(f"an array of shape {shape} with {len(flat)} values")
    return bytes(name).decode("ascii"), flat.reshape(shape, order="F")
