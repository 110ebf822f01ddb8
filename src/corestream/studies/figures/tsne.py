"""Figure 8: t-SNE of the samples each method keeps, over the stream's samples."""

from collections.abc import Mapping

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor

from corestream.messages import counted
from corestream.studies.figures.style import panels

Points = tuple[Tensor, Tensor]  # inputs [n, ...] and labels [n]


def draw(stream: Points, kept: Mapping[str, Points], *, seed: int = 0) -> Figure:
    """One panel per method: the stream's samples faint, the kept ones large, coloured by class."""
    everything = [stream[0], *(inputs for inputs, _ in kept.values())]
    places = embed(np.concatenate([inputs.flatten(1).numpy() for inputs in everything]), seed)
    parts = np.split(places, np.cumsum([len(inputs) for inputs in everything])[:-1])
    titles = [
        f"{name}: {len(labels)} kept, {counted(len(set(labels.tolist())), 'class', 'classes')}"
        for name, (_, labels) in kept.items()
    ]
    figure, axes = panels(titles)
    for panel, own, (_, labels) in zip(axes, parts[1:], kept.values(), strict=True):
        panel.scatter(parts[0][:, 0], parts[0][:, 1], c=_colours(stream[1]), s=5, alpha=0.35, linewidths=0)
        panel.scatter(own[:, 0], own[:, 1], c=_colours(labels), s=26, edgecolors="black", linewidths=0.6)
        panel.set_xticks([])
        panel.set_yticks([])
    return figure


def _colours(labels: Tensor) -> np.ndarray:
    return np.asarray(colormaps["tab10"](labels.numpy() % 10))


def embed(values: np.ndarray, seed: int) -> np.ndarray:
    """[n, d] → [n, 2]: principal components first, then t-SNE."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    components = min(50, *values.shape)
    reduced = PCA(n_components=components, random_state=seed).fit_transform(values)
    perplexity = min(30.0, (len(values) - 1) / 3)
    placed: np.ndarray = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)
    return placed
