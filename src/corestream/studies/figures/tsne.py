"""Figure 8: t-SNE of the samples each method keeps, over the stream's samples."""

from collections.abc import Mapping

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from corestream.messages import counted
from corestream.studies.figures.style import legend_below, panels

COLOURS = 10  # of the map: with more classes, some share one
NAMED = 3  # classes of one colour that the legend names
Points = tuple[Tensor, Tensor]  # inputs [n, ...] and labels [n]


def draw(stream: Points, kept: Mapping[str, Points], *, name: str, seed: int = 0) -> Figure:
    """One panel per method: the samples of the stream of that name faint, the kept ones large, coloured by class."""
    everything = [stream[0], *(inputs for inputs, _ in kept.values())]
    places = embed(np.concatenate([inputs.flatten(1).numpy() for inputs in everything]), seed)
    parts = np.split(places, np.cumsum([len(inputs) for inputs in everything])[:-1])
    titles = [
        f"{name}\n{method}: {len(labels)} kept, {counted(len(set(labels.tolist())), 'class', 'classes')}"
        for method, (_, labels) in kept.items()
    ]
    figure, axes = panels(titles)
    for panel, own, (_, labels) in zip(axes, parts[1:], kept.values(), strict=True):
        panel.scatter(parts[0][:, 0], parts[0][:, 1], c=_colours(stream[1]), s=5, alpha=0.35, linewidths=0)
        panel.scatter(own[:, 0], own[:, 1], c=_colours(labels), s=26, edgecolors="black", linewidths=0.6)
        panel.set_xticks([])
        panel.set_yticks([])
    _name_classes(axes[0], {label for _, labels in (stream, *kept.values()) for label in labels.tolist()})
    legend_below(figure, axes[0])
    return figure


def _name_classes(panel: Axes, labels: set[int]) -> None:
    """An entry of the legend for each colour, with the classes that have it."""
    for colour in range(COLOURS):
        own = [str(label) for label in sorted(labels) if label % COLOURS == colour]
        if own:
            words = ", ".join(own[:NAMED]) + (", …" if len(own) > NAMED else "")
            panel.plot([], [], "o", color=colormaps["tab10"](colour), label=f"class {words}")


def _colours(labels: Tensor) -> np.ndarray:
    return np.asarray(colormaps["tab10"](labels.numpy() % COLOURS))


def embed(values: np.ndarray, seed: int) -> np.ndarray:
    """[n, d] → [n, 2]: principal components first, then t-SNE."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    components = min(50, *values.shape)
    reduced = PCA(n_components=components, random_state=seed).fit_transform(values)
    perplexity = min(30.0, (len(values) - 1) / 3)
    placed: np.ndarray = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)
    return placed
