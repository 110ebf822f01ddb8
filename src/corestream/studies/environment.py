"""Where a run was made: versions, commit, machine, device. In config.json, and no part of the digest."""

import os
import platform
import subprocess
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from corestream.errors import ConfigError

PACKAGES = ("corestream", "torch", "numpy", "scipy", "scikit-learn", "safetensors")


def environment(device: str) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "platform": platform.platform(),
        "processor": _processor(),
        "device": device_name(device),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def set_up_card() -> None:
    """Read by CUDA and by torch's compiler as they start: runs side by side want a hardware queue each, where all would share eight;
    and for a few small functions a compiler in this process is ready before a pool of others has started."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    for compiler in ("torch", "triton"):  # speaks to those who build it
        warnings.filterwarnings("ignore", module=rf"{compiler}\.")


def resolve_device(name: str) -> str:
    """'auto' is the graphics card where there is one."""
    set_up_card()
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; allowed are auto, cpu and cuda")
    return name


def prepare_device(device: str, deterministic: bool) -> None:
    """Before the first tensor of a run. Deterministic kernels cost speed on CUDA, and nothing on CPU.

    Matrix products on a card are in TF32, as convolutions are by torch's own choice; NVIDIA_TF32_OVERRIDE=0 turns both off.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', and torch finds no usable CUDA card here; use --device cpu")
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
    # only where it says something: it imports torch's compiler, which takes seconds
    if deterministic or torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(deterministic)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _commit() -> str | None:
    """The source's commit where it runs from a checkout of its own, with a + where files were changed."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + "+" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
