"""How does the model learn? One short file per method, one contract."""

from .a_gem import AGEM
from .base import Learner
from .bilevel import Bilevel
from .coreset import Coreset
from .er_mir import ERMIR
from .er_reservoir import ERReservoir
from .ewc import EWC
from .finetune import Finetune
from .grad_matching import GradMatching
from .gss import GSS
from .icarl import ICaRL
from .kmeans import KMeansEmbedding, KMeansFeatures
from .mc_sgd import MCSGD, MCSGDOCS
from .methods import METHODS
from .ocs import OCS
from .presets import PROTOCOLS
from .registry import Method, build, default_protocol, describe, names, register, settings
from .rehearsal import Rehearsal
from .stable_sgd import StableSGD
from .step import Step
from .uniform import Uniform
from .uniform_ocs import UniformOCS
from .vector_ocs import FeatOCS, InputOCS

__all__ = [
    "AGEM",
    "ERMIR",
    "EWC",
    "GSS",
    "MCSGD",
    "MCSGDOCS",
    "METHODS",
    "OCS",
    "PROTOCOLS",
    "Bilevel",
    "Coreset",
    "ERReservoir",
    "FeatOCS",
    "Finetune",
    "GradMatching",
    "ICaRL",
    "InputOCS",
    "KMeansEmbedding",
    "KMeansFeatures",
    "Learner",
    "Method",
    "Rehearsal",
    "StableSGD",
    "Step",
    "Uniform",
    "UniformOCS",
    "build",
    "default_protocol",
    "describe",
    "names",
    "register",
    "settings",
]
