"""How long torch's threads wait for their next operation before they sleep; to be set before torch is there.

By default they turn in circles for so long that, where another program wants the processor too, they keep it from the thread that they
wait for: a run took thirty times as long. This is enough to bridge the gaps between a step's operations.
"""

import os
import sys

SPINS = 10_000
if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
