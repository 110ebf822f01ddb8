"""Small charts as SVG text whose colours are the page's own, so that they follow light and dark."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 10, 34
NUMBERED_TASKS = 10  # with more, a matrix has no room for numbers


@dataclass(frozen=True)
class Line:
    """One method's mean over the tasks, with its deviation; `colour` counts the page's colours."""

    name: str
    colour: int
    means: Sequence[float]
    deviations: Sequence[float]


def line_chart(lines: Sequence[Line], *, label: str) -> Markup:
    """Lines over tasks 1, 2, … with bands of one standard deviation."""
    tasks = max((len(line.means) for line in lines), default=1)
    values = [
        m + s for line in lines for m, d in zip(line.means, line.deviations, strict=True) for s in (-d, d)
    ]
    ticks = _ticks(min(values, default=0.0), max(values, default=100.0))
    low, high = ticks[0], ticks[-1]

    def x(task: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * task / max(1, tasks - 1)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    parts = [_frame(ticks, y)]
    for task in _named(tasks):
        parts.append(_text(x(task), HEIGHT - BOTTOM + 16, str(task + 1), "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "tasks learned", "middle"))
    for line in lines:
        over = [(x(t), y(m + d)) for t, (m, d) in enumerate(zip(line.means, line.deviations, strict=True))]
        under = [(x(t), y(m - d)) for t, (m, d) in enumerate(zip(line.means, line.deviations, strict=True))]
        parts.append(
            Markup('<polygon class="band c{}" points="{}"/>').format(line.colour, _points(over + under[::-1]))
        )
        middle = [(x(t), y(m)) for t, m in enumerate(line.means)]
        parts.append(
            Markup(
                '<polyline class="line c{}" points="{}"><title>{}: {:.1f} % at the end</title></polyline>'
            ).format(line.colour, _points(middle), line.name, line.means[-1])
        )
    return _svg(WIDTH, HEIGHT, label, parts)


def matrix_chart(matrix: Sequence[Sequence[float | None]], *, colour: int, label: str) -> Markup:
    """A cell for the accuracy, in per cent, on each task (across) after each task learned (down)."""
    tasks = len(matrix)
    wide = (WIDTH - LEFT - RIGHT) / tasks
    tall = 0.7 * wide
    parts = []
    for task in _named(tasks):
        parts.append(_text(LEFT - 6, TOP + tall * (task + 0.5) + 4, str(task + 1), "end"))
        parts.append(_text(LEFT + wide * (task + 0.5), TOP + tall * tasks + 16, str(task + 1), "middle"))
    for t, row in enumerate(matrix):
        for i, value in enumerate(row):
            if value is None:
                continue
            left, top = LEFT + wide * i, TOP + tall * t
            cell = Markup(
                '<rect class="cell c{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" style="opacity:{:.2f}">'
                "<title>task {} after task {}: {:.1f} %</title></rect>"
            )
            strength = 0.04 + 0.56 * value / 100  # never so strong that a number on it cannot be read
            parts.append(cell.format(colour, left, top, wide - 1, tall - 1, strength, i + 1, t + 1, value))
            if tasks <= NUMBERED_TASKS:
                parts.append(_text(left + wide / 2, top + tall / 2 + 4, f"{value:.0f}", "middle"))
    return _svg(WIDTH, round(TOP + tall * tasks + 24), label, parts)


def class_chart(
    kept: Mapping[str, float], stream: Mapping[str, float], *, top: float, colour: int, label: str
) -> Markup:
    """Shares of the classes up to `top`: bars for the memory, a stroke across each for the stream, where that is known."""
    classes = sorted(
        {*kept, *stream}, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name)
    )
    height = 130
    room = (WIDTH - 20) / max(1, len(classes))
    parts = []
    for place, name in enumerate(classes):
        left, wide = 10 + place * room, room * 0.8
        shares = {"bar": kept.get(name, 0.0)} | ({"mark": stream.get(name, 0.0)} if stream else {})
        for tag, share in shares.items():
            tall = (height - 30) * share / top
            bottom = height - 20 - tall
            shape = (left, bottom, wide, tall) if tag == "bar" else (left - 1, bottom - 1, wide + 2, 2)
            parts.append(
                Markup('<rect class="{} c{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                    tag, colour, *shape
                )
            )
        if len(classes) <= 12:
            parts.append(_text(left + wide / 2, height - 6, name, "middle"))
    return _svg(WIDTH, height, label, parts)


def bar(share: float, *, colour: int) -> Markup:
    """A bar inside a table cell; `share` from 0 to 1."""
    width = 100 * min(1.0, max(0.0, share))
    return Markup('<span class="track"><span class="fill c{}" style="width:{:.1f}%"></span></span>').format(
        colour, width
    )


def _svg(width: int, height: int, label: str, parts: Sequence[Markup]) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(width, height, label)
    return head + Markup("").join(parts) + Markup("</svg>")


def _named(tasks: int) -> range:
    """The tasks whose numbers an axis has room for: about ten."""
    return range(0, tasks, -(-tasks // 10))


def _frame(ticks: Sequence[float], y: Callable[[float], float]) -> Markup:
    parts = []
    for value in ticks:
        ends = Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
        parts.append(ends.format(LEFT, WIDTH - RIGHT, y(value), y(value)))
        parts.append(_text(LEFT - 6, y(value) + 4, f"{value:.0f}", "end"))
    return Markup("").join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, escape(text))


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _ticks(low: float, high: float) -> list[float]:
    """At most six round numbers around the values."""
    step = next((step for step in (1, 2, 5, 10, 20) if (high - low) / step <= 4), 25)
    first, last = math.floor(low / step), math.ceil(high / step)
    if first == last:  # below it, for 100 % is the most, but for nothing at all
        first, last = (first - 1, last) if last > 0 else (first, last + 1)
    return [float(step * number) for number in range(first, last + 1)]
