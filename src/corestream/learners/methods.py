"""The methods of the paper, registered under its names."""

from .a_gem import AGEM
from .bilevel import Bilevel
from .er_mir import ERMIR
from .er_reservoir import ERReservoir
from .ewc import EWC
from .finetune import Finetune
from .grad_matching import GradMatching
from .gss import GSS
from .icarl import ICaRL
from .kmeans import KMeansEmbedding, KMeansFeatures
from .mc_sgd import MCSGD, MCSGDOCS
from .ocs import OCS
from .registry import METHODS, Method, register
from .settings import (
    BilevelSettings,
    CoresetSettings,
    EWCSettings,
    GradMatchingSettings,
    GSSSettings,
    MCSGDOCSSettings,
    MCSGDSettings,
    MemorySettings,
    MIRSettings,
    OCSSettings,
    RankingSettings,
    Settings,
    SharedMemorySettings,
    StableSGDSettings,
    UniformOCSSettings,
    VectorOCSSettings,
)
from .stable_sgd import StableSGD
from .uniform import Uniform
from .uniform_ocs import UniformOCS
from .vector_ocs import FeatOCS, InputOCS

for method in (
    Method("finetune", "plain SGD over the sequence of tasks", Finetune, Settings),
    Method("multitask", "plain SGD on all tasks' data at once: the upper bound", Finetune, Settings),
    Method("ewc", "a quadratic penalty by the Fisher diagonal holds important weights", EWC, EWCSettings),
    Method(
        "stable-sgd",
        "dropout, a large first learning rate and its decay per task",
        StableSGD,
        StableSGDSettings,
    ),
    Method(
        "a-gem",
        "the gradient is projected where it conflicts with the memory's",
        AGEM,
        SharedMemorySettings,
        "shares",
    ),
    Method(
        "er-reservoir",
        "a reservoir memory; its samples join each batch",
        ERReservoir,
        MemorySettings,
        "reservoir",
    ),
    Method("uniform", "random samples are remembered and replayed", Uniform, CoresetSettings, "shares"),
    Method(
        "icarl", "herding: the samples nearest each class's mean", ICaRL, RankingSettings, "shares", "class"
    ),
    Method(
        "kmeans-features", "the seeds of k-means++ on raw inputs", KMeansFeatures, RankingSettings, "shares"
    ),
    Method(
        "kmeans-embedding", "the seeds of k-means++ on embeddings", KMeansEmbedding, RankingSettings, "shares"
    ),
    Method(
        "grad-matching",
        "the samples whose mean gradient is that of all",
        GradMatching,
        GradMatchingSettings,
        "shares",
    ),
    Method(
        "gss", "the memory's gradients point in as many directions as possible", GSS, GSSSettings, "shares"
    ),
    Method("er-mir", "replays what the coming step would harm most", ERMIR, MIRSettings, "reservoir"),
    Method(
        "bilevel", "the samples a kernel model learns all others from", Bilevel, BilevelSettings, "shares"
    ),
    Method(
        "ocs",
        "trains on and remembers what represents, differs and agrees",
        OCS,
        OCSSettings,
        "shares",
        "class",
    ),
    Method("input-ocs", "OCS's criteria on raw inputs", InputOCS, VectorOCSSettings, "shares", "class"),
    Method("feat-ocs", "OCS's criteria on embeddings", FeatOCS, VectorOCSSettings, "shares", "class"),
    Method(
        "uniform+ocs",
        "trains on random samples, remembers OCS's picks",
        UniformOCS,
        UniformOCSSettings,
        "shares",
        "class",
    ),
    Method("mc-sgd", "a solution connected to the old and the new minimum", MCSGD, MCSGDSettings, "shares"),
    Method("mc-sgd+ocs", "MC-SGD with OCS's picks and memory", MCSGDOCS, MCSGDOCSSettings, "shares", "class"),
):
    register(method)

BUILT_IN = frozenset(METHODS)  # the others come from files of the user's own

__all__ = ["BUILT_IN", "METHODS"]
