"""How long torch's threads spin, waiting for their next operation, before they sleep; set before torch is imported.

By default they spin for so long that, where another program wants the processor too, they keep it from the very thread that they wait
for: a run took thirty times as long. SPINS is enough to bridge the gaps between a step's operations.
"""

import os
import sys

SPINS = 10_000
if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
