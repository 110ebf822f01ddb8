"""The process's own random generators — Python's, NumPy's, torch's — seeded, stored and restored.

What a learner draws from its own generators is in its state; dropout and third parties draw from these.
"""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

NUMPY_KEYS, TORCH, CUDA = "random.numpy", "random.torch", "random.cuda"


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the legacy generator is what third parties draw from
    torch.manual_seed(seed)


def capture(device: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state as tensors, and what is left of it as JSON."""
    state_of_numpy: Any = np.random.get_state()  # noqa: NPY002
    _, keys, place, has_gauss, gauss = state_of_numpy
    tensors = {NUMPY_KEYS: torch.from_numpy(keys.astype(np.int64)), TORCH: torch.get_rng_state()}
    if device == "cuda":
        tensors[CUDA] = torch.cuda.get_rng_state()
    version, state, gauss_next = random.getstate()
    facts = {
        "python": [version, list(state), gauss_next],
        "numpy": [int(place), int(has_gauss), float(gauss)],
    }
    return tensors, facts


def restore(device: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    version, state, gauss_next = facts["python"]
    random.setstate((version, tuple(state), gauss_next))
    keys = tensors[NUMPY_KEYS].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, *facts["numpy"]))  # noqa: NPY002
    torch.set_rng_state(tensors[TORCH])
    if device == "cuda":
        torch.cuda.set_rng_state(tensors[CUDA])
