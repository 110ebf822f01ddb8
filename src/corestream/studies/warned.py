"""Which warnings are corestream's own: they are told in one line, without the place in the code."""

from pathlib import Path

import corestream
from corestream.errors import CorestreamWarning

PACKAGE = Path(corestream.__file__).parent


def is_own(category: type[Warning], filename: str) -> bool:
    ours = category is UserWarning and Path(filename).is_relative_to(PACKAGE)
    return ours or issubclass(category, CorestreamWarning)
