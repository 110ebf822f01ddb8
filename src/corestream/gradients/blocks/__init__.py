"""How the per-sample gradients of one layer are held: as factors, never as the whole N × P matrix.

Every layer rule turns its input and output gradient into one of three blocks, and the five verbs are written once for each:

- `Outer`: g_n = Σ_t b_nt ⊗ a_nt (linear weights, and as `Convolved` those of convolutions);
- `Lookup`: an `Outer` whose a_nt is one-hot (embeddings);
- `Rows`: g_n itself, where it is small or nothing better exists (biases, norms, the general path).

`Mixed` sums blocks of different kinds that reach the same parameter.
"""

from .block import Block
from .convolved import Convolved, Geometry
from .lookup import Lookup
from .mixed import Mixed
from .outer import Outer
from .rows import Rows

__all__ = ["Block", "Convolved", "Geometry", "Lookup", "Mixed", "Outer", "Rows"]
