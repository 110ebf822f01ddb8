"""iCaRL's memory (Rebuffi et al. 2017): herding in each class, replayed with λ as the paper's study does."""

from torch import Tensor

from ..memory import Samples
from ..memory.balance import groups
from ..selection.herding import herding_per_class
from .coreset import Coreset
from .features import features


class ICaRL(Coreset):
    """The samples of each class whose mean normalised embedding stays closest to that of the class.

    Give it a memory with balance="class"; with another balance its groups take the place of classes, and with None there is one of all.
    Older tasks shrink by dropping what herding chose last, unless `shrink` is "anew".
    """

    def choose(self, samples: Samples, k: int) -> Tensor:
        members = groups(samples.targets, self.memory.balance)
        return herding_per_class(features(self.model, samples.inputs), members, k)
