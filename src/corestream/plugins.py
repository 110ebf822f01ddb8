"""Methods and benchmarks of one's own on the command line.

CORESTREAM_IMPORT names the files or modules that register them, parted as in PATH. Worker processes read it as well.
"""

import importlib
import importlib.util
import os
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from .errors import ConfigError

VARIABLE = "CORESTREAM_IMPORT"


@cache
def import_plugins() -> None:
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            if name.endswith(".py"):
                _import_file(Path(name).resolve())
            else:
                importlib.import_module(name)
        except (Exception, SystemExit) as error:
            kind = type(error).__name__
            raise ConfigError(
                f"{VARIABLE} names {name}, which cannot be imported: {kind}: {error}"
            ) from error


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
