"""k-means coresets: k-means++ seeding on inputs (Nguyen et al. 2018) or on embeddings (Sener, Savarese 2018)."""

from torch import Tensor

from ..memory import Samples
from ..selection.kmeans import kmeans_plus_plus
from .coreset import Coreset
from .features import features, raw_inputs


class KMeansFeatures(Coreset):
    """The seeds of k-means++ among the raw inputs."""

    def choose(self, samples: Samples, k: int) -> Tensor:
        return kmeans_plus_plus(raw_inputs(samples.inputs), k, generator=self.generator)


class KMeansEmbedding(Coreset):
    """The seeds of k-means++ among the model's embeddings."""

    def choose(self, samples: Samples, k: int) -> Tensor:
        return kmeans_plus_plus(features(self.model, samples.inputs), k, generator=self.generator)
