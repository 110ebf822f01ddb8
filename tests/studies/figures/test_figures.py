from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from corestream.studies.figures import curves, interpolation, kept_pictures, memory_sizes, tsne
from corestream.studies.figures.style import colour_of, save
from corestream.studies.results import Result
from corestream.studies.tables import Table, make_cell

METRICS = ("accuracy", "forgetting")


def result(seed: int, method: str = "ocs", matrix: Any = None, **settings: Any) -> Result:
    matrix = matrix or [[0.9, None, None], [0.8, 0.9, None], [0.7, 0.8, 0.6 + seed / 10]]
    config = {"benchmark": "b", "method": method, "seed": seed, "settings": settings}
    return Result(config, {"matrix": matrix, "average_accuracy": 0.7 + seed / 100, "forgetting": 0.1})


def learned(seed: int, *, capacity: int, level: int) -> Result:
    """A run with a memory of that capacity, which finds the more the higher its level."""
    return result(seed, matrix=[[0.5 + level / 1000]], capacity=capacity)


def table(**rows: list[Result]) -> Table:
    cells = {(row, "rotated-digits"): make_cell(results) for row, results in rows.items()}
    return Table("t", "T", tuple(rows), ("rotated-digits",), METRICS, cells)


def texts(figure: Figure) -> str:
    return " ".join(
        text.get_text() for text in figure.findobj(match=lambda artist: hasattr(artist, "get_text"))
    )


def test_curves_have_one_line_per_method_and_joint_training_has_none() -> None:
    joint = [[None, None], [0.9, 0.9]]
    figure = curves.draw(table(ocs=[result(0), result(1)], multitask=[result(0, "multitask", joint)]))
    average, first = figure.axes
    (line,) = average.get_lines()
    assert line.get_ydata()[-1] == pytest.approx(100 * (0.7 + 0.8 + 0.65) / 3)
    assert [round(y) for y in first.get_lines()[0].get_ydata()] == [90, 80, 70]


def test_memory_sizes_are_on_the_axis_in_order() -> None:
    rows = {f"ocs, J × {n}": [learned(s, capacity=100 * n, level=n) for s in (0, 1)] for n in (5, 1, 2)}
    (panel,) = memory_sizes.draw(table(**rows)).axes
    assert list(panel.get_lines()[0].get_xdata()) == [100, 200, 500]
    assert panel.get_xlabel() == "samples in memory, J"


def test_memory_sizes_end_where_a_larger_memory_gives_the_same_runs() -> None:
    rows = {
        f"J = {n}": [learned(s, capacity=n, level=min(n, 300)) for s in (0, 1)] for n in (100, 200, 300, 500)
    }
    (panel,) = memory_sizes.draw(table(**rows)).axes
    assert list(panel.get_lines()[0].get_xdata()) == [100, 200, 300]
    assert (
        "larger ones are not filled, and give the same runs: above 300 (ocs)"
        in panel.get_xlabel().replace("\n", " ")
    )


def test_memory_sizes_have_a_line_for_each_protocol_of_a_method() -> None:
    ours = result(0, "uniform", capacity=100)
    ours = replace(ours, config={**ours.config, "protocol": "ocs-schedule"})
    rows = {"uniform J×1": [result(0, "uniform", capacity=100)], "uniform:ocs-schedule": [ours]}
    figure = memory_sizes.draw(table(**rows))
    assert [container.get_label() for container in figure.axes[0].containers] == [
        "uniform",
        "uniform:ocs-schedule",
    ]


def test_interpolation_draws_with_and_without_affinity() -> None:
    rows = {
        f"{share} {affinity}": [result(0, weights=[share, 1 - share, affinity])]
        for share in (0.0, 0.5, 1.0)
        for affinity in (0.0, 1.0)
    }
    (panel,) = interpolation.draw(table(**rows)).axes
    lines = [container.lines[0] for container in panel.containers]
    assert [list(line.get_xdata()) for line in lines] == [[0.0, 0.5, 1.0]] * 2


def test_kept_pictures_have_a_panel_per_method_and_condition() -> None:
    pictures = torch.rand(9, 1, 8, 8)
    figure = kept_pictures.draw({("ocs", "a"): pictures}, ["uniform", "ocs"], ["a", "b"])
    assert len(figure.axes) == 4
    assert sum(len(panel.images) for panel in figure.axes) == 1


def test_tsne_says_how_many_classes_are_kept() -> None:
    inputs, labels = torch.rand(60, 1, 4, 4), torch.arange(60) % 10
    kept = {"ocs": (inputs[:8], labels[:8]), "gss": (inputs[:2], labels[:2])}
    figure = tsne.draw((inputs, labels), kept, name="rotated-digits")
    assert "rotated-digits\nocs: 8 kept, 8 classes" in texts(figure)
    assert "rotated-digits\ngss: 2 kept, 2 classes" in texts(figure)


def test_tsne_names_its_classes() -> None:
    inputs, labels = torch.rand(60, 1, 4, 4), torch.arange(60) % 42
    figure = tsne.draw((inputs, labels), {"ocs": (inputs[:8], labels[:8])}, name="rotated-digits")
    (legend,) = figure.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert len(words) == 10
    assert words[1:3] == ["class 1, 11, 21, …", "class 2, 12, 22, …"]


def test_a_figure_is_saved_as_png_and_svg_with_its_note(tmp_path: Path) -> None:
    figure = curves.draw(table(ocs=[result(0)]))
    png, svg = save(figure, tmp_path / "new", "figure4", note="SVHN: only a sample")
    with Image.open(png) as picture:
        assert picture.size[0] > 300
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert "only a sample" in texts(figure)


def test_a_long_note_stays_on_the_figure(tmp_path: Path) -> None:
    figure = curves.draw(table(ocs=[result(0)]))
    note = "; ".join(
        f"dataset {n}: a sample, 1,000 of 50,000 training and 200 of 10,000 test images" for n in "abcde"
    )
    save(figure, tmp_path, "figure4", note)
    title = figure.get_suptitle()
    assert title.replace("\n", " ") == note
    (drawn,) = [text for text in figure.texts if text.get_text() == title]
    box = drawn.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_ocs_has_its_colour_in_every_figure() -> None:
    assert colour_of("icarl", ["a", "icarl", "ocs"]) == colour_of("icarl", ["uniform", "icarl"])
    assert colour_of("a", ["a", "ocs", "gss"]) not in {colour_of(name, []) for name in ("ocs", "gss")}
    assert colour_of("a", ["a", "ocs", "b"]) != colour_of("b", ["a", "ocs", "b"])
