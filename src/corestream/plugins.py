"""Methods and benchmarks of one's own on the command line.

CORESTREAM_IMPORT names the files or modules that register them, parted as in PATH. Worker processes read it as well.
"""

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from functools import cache
from hashlib import sha256
from pathlib import Path

from .errors import ConfigError

VARIABLE = "CORESTREAM_IMPORT"
LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
NOT_OWN = (*LIBRARIES, str(Path(__file__).parent), "<frozen")


@cache
def import_plugins() -> None:
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            if name.endswith(".py"):
                _import_file(Path(name).resolve())
            else:
                importlib.import_module(name)
        except (Exception, SystemExit) as error:
            words = f"{type(error).__name__}: {error}{_place(error)}"
            raise ConfigError(f"{VARIABLE} names {name}, which cannot be imported: {words}") from error


def _place(error: BaseException) -> str:
    """The last line of the user's own that was at work, ` (own.py:2)`; none where a file could not be opened or parsed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(NOT_OWN)]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _import_file(path: Path) -> None:
    """As Python does with a script: what lies beside it can be imported by it."""
    sys.path.insert(0, str(path.parent))
    # named after the whole path: two files may be called alike
    name = f"corestream_own_{sha256(bytes(path)).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
