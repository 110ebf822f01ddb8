from xml.etree import ElementTree

import pytest

from corestream.studies.charts import Line, _ticks, bar, class_chart, line_chart, matrix_chart


def numbers(text: str) -> list[float]:
    return [float(part) for pair in text.split() for part in pair.split(",")]


def test_a_higher_value_is_drawn_higher_and_inside_the_picture() -> None:
    svg = ElementTree.fromstring(line_chart([Line("ocs", 0, [50.0, 80.0], [5.0, 5.0])], label="a"))
    (line,) = svg.findall("polyline")
    x1, y1, x2, y2 = numbers(line.get("points", ""))
    assert x1 < x2
    assert y1 > y2
    band = numbers(svg.find("polygon").get("points", ""))  # type: ignore[union-attr]
    assert min(band) >= 0
    assert max(band[::2]) <= 440
    assert max(band[1::2]) <= 250


@pytest.mark.parametrize(("low", "high"), [(0, 100), (61, 64), (20, 20), (-3, 5), (44.2, 92.8)])
def test_ticks_are_few_and_hold_the_values(low: float, high: float) -> None:
    ticks = _ticks(low, high)
    assert ticks[0] <= low
    assert high <= ticks[-1]
    assert 2 <= len(ticks) <= 6


@pytest.mark.parametrize(("value", "ticks"), [(100, [99, 100]), (20, [19, 20]), (0, [0, 1])])
def test_an_accuracy_that_never_changes_has_an_axis_that_ends_at_100(
    value: float, ticks: list[float]
) -> None:
    assert _ticks(value, value) == ticks


def test_a_matrix_has_a_cell_for_each_measured_pair_stronger_for_more() -> None:
    svg = ElementTree.fromstring(matrix_chart([[90.0], [20.0, 80.0]], colour=1, label="x"))
    cells = svg.findall("rect")
    assert [cell.find("title").text for cell in cells] == [  # type: ignore[union-attr]
        "task 1 after task 1: 90.0 %",
        "task 1 after task 2: 20.0 %",
        "task 2 after task 2: 80.0 %",
    ]
    first, lost, second = cells
    assert float(lost.get("y", 0)) > float(first.get("y", 0))
    assert float(second.get("x", 0)) > float(lost.get("x", 0))
    strength = [float(cell.get("style", "").removeprefix("opacity:")) for cell in cells]
    assert strength[0] > strength[2] > strength[1] > 0
    assert [text.text for text in svg.findall("text")][-3:] == ["90", "20", "80"]


def test_a_matrix_of_many_tasks_has_cells_without_numbers() -> None:
    rows = [[50.0] * t + [None] for t in range(20)]
    svg = ElementTree.fromstring(matrix_chart(rows, colour=1, label="x"))
    assert len(svg.findall("rect")) == sum(range(20))
    assert {text.text for text in svg.findall("text")} == {str(task) for task in range(1, 21, 2)}


def test_classes_are_in_the_order_of_their_numbers() -> None:
    svg = ElementTree.fromstring(class_chart({"10": 0.5, "2": 0.5}, {"0": 1.0}, top=1.0, colour=1, label="x"))
    assert [text.text for text in svg.findall("text")] == ["0", "2", "10"]
    assert len(svg.findall("rect")) == 6


def test_a_share_is_as_tall_in_every_chart_of_one_scale_and_an_unknown_stream_has_no_marks() -> None:
    charts = [
        ElementTree.fromstring(class_chart(kept, {}, top=0.8, colour=1, label="x"))
        for kept in ({"0": 0.8, "1": 0.2}, {"0": 0.2})
    ]
    heights = [[float(bar.get("height", 0)) for bar in chart.findall("rect")] for chart in charts]
    assert heights[0] == [pytest.approx(4 * heights[0][1]), heights[1][0]]
    assert all("mark" not in ElementTree.tostring(chart, "unicode") for chart in charts)


def test_names_are_escaped_and_shares_are_cut_at_the_ends() -> None:
    chart = line_chart([Line("<b>", 0, [1.0, 2.0], [0.0, 0.0])], label='"><script>')
    assert "<b>" not in chart
    assert "<script>" not in chart
    assert "width:100.0%" in bar(1.7, colour=0)
    assert "width:0.0%" in bar(-1.0, colour=0)
