"""The shelf: the networks of the paper, as plain nn.Modules."""

from corestream.models.classifier import Classifier
from corestream.models.for_stream import NETWORKS, for_stream
from corestream.models.mlp import MLP
from corestream.models.resnet import ResNet18

__all__ = ["MLP", "NETWORKS", "Classifier", "ResNet18", "for_stream"]
