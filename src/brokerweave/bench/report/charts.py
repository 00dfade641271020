"""Bars, boxes, lines, points and histograms as SVG: made of text, so the same numbers give the same file.

Owns the drawing, on linear axes. Must not know: what is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

from brokerweave.pipeline.plot import COLOURS, NAMESPACE, Points

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 74, 130, 36, 52
_GRID, _QUIET = "#e3e6ea", "#5b6470"
_DASHES = ("", "6 3", "2 2")
"""Lines beyond the number of colours are told apart by these."""
_HEADROOM = 1.12
"""Bars leave this much for their numbers."""
_GAP, _WIDEST_BAR = 1.0, 46.0
"""Between two groups, in bars; and how wide a bar gets where there are few, in pixels."""
_LABEL_WIDTH = 6.6
"""Pixels of a letter, about; names that would run into each other are slanted."""


@dataclass(frozen=True, slots=True)
class ChartMark:
    """An upright line at a place that matters, with a word beside it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to pixels. `first` is the lowest tick."""

    low: float
    high: float
    step: float
    first: float
    start: float
    end: float

    @classmethod
    def over(
        cls, values: Sequence[float], start: float, end: float, *, zero: bool = True, tight: bool = False
    ) -> _Scale:
        """Between two round numbers; or, if `tight`, just as far as the values go."""
        known = [value for value in values if isfinite(value)] or [0.0]
        low, high = min(known), max(known)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        width = high - low or abs(high) or 1.0
        power = 10.0 ** floor(log10(width))
        step = next(part * power for part in (0.2, 0.5, 1.0, 2.0) if width <= 5 * part * power)
        if tight and high > low:
            return cls(low, high, step, ceil(low / step - 1e-9) * step, start, end)
        bottom = floor(low / step + 1e-9) * step
        return cls(bottom, max(ceil(high / step - 1e-9) * step, bottom + step), step, bottom, start, end)

    def place(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        number = floor((self.high - self.first) / self.step + 1e-9)
        return [self.first + self.step * n for n in range(number + 1)]


def bars(title: str, up: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Groups side by side, in each a bar for each series that it has (ILDM, Figs. 11 and 12)."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    most = max((v for group in groups.values() for v in group.values()), default=0.0)
    ys = _Scale.over([_HEADROOM * most], HEIGHT - BOTTOM, TOP)
    parts = [*_frame(title, "", up), *_up_axis(ys)]
    slots = sum(len(group) + _GAP for group in groups.values())
    width = min((WIDTH - RIGHT - LEFT) / max(slots, 1), _WIDEST_BAR)
    slanted = any(len(name) * _LABEL_WIDTH > width * (len(group) + _GAP) for name, group in groups.items())
    left = LEFT + (WIDTH - RIGHT - LEFT - width * slots) / 2
    for name, group in groups.items():
        room = width * (len(group) + _GAP)
        first = left + width * _GAP / 2
        for place, (each, value) in enumerate(group.items()):
            x, y = round(first + place * width, 1), ys.place(value)
            colour = COLOURS[series.index(each) % len(COLOURS)]
            tall = round(HEIGHT - BOTTOM - y, 1)
            parts.append(
                f'<rect x="{x}" y="{y}" width="{round(width - 2, 1)}" height="{tall}" fill="{colour}">'
                f"<title>{escape(f'{name} {each}'.strip())}: {number_text(value)}</title></rect>"
            )
            parts.append(_over(round(x + width / 2 - 1, 1), y - 3, _short(value), width))
        parts.append(_under(round(left + room / 2, 1), name, slanted))
        left += room
    return _finished(parts, series)


def boxes(title: str, up: str, groups: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Groups side by side, in each a box plot for each series: quartiles, whiskers to what lies within one
    and a half times the box, and what lies beyond as points."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    ys = _Scale.over(
        [v for group in groups.values() for vs in group.values() for v in vs], HEIGHT - BOTTOM, TOP
    )
    parts = [*_frame(title, "", up), *_up_axis(ys)]
    slots = sum(len(group) + _GAP for group in groups.values())
    width = min((WIDTH - RIGHT - LEFT) / max(slots, 1), _WIDEST_BAR)
    left = LEFT + (WIDTH - RIGHT - LEFT - width * slots) / 2
    for name, group in groups.items():
        for place, (each, values) in enumerate(group.items()):
            if values:
                x, colour = left + width * (place + _GAP / 2), COLOURS[series.index(each) % len(COLOURS)]
                parts += _box(f"{name} {each}".strip(), sorted(values), x, width - 2, colour, ys)
        room = width * (len(group) + _GAP)
        parts.append(_under(round(left + room / 2, 1), name, slanted=False))
        left += room
    return _finished(parts, series)


def _box(name: str, values: Sequence[float], x: float, width: float, colour: str, ys: _Scale) -> list[str]:
    low, middle, high = (quantile(values, part) for part in (0.25, 0.5, 0.75))
    reach = 1.5 * (high - low)
    inside = [value for value in values if low - reach <= value <= high + reach]
    left, centre, wide = round(x, 1), round(x + width / 2, 1), round(width, 1)
    top, bottom = ys.place(high), ys.place(low)
    least, most, half = ys.place(inside[0]), ys.place(inside[-1]), ys.place(middle)
    said = f"{name}: median {number_text(middle)}, most {number_text(values[-1])}"
    outside = dict.fromkeys(ys.place(value) for value in values if not inside[0] <= value <= inside[-1])
    tall = round(max(bottom - top, 0.5), 1)
    placed = f'x="{left}" y="{top}" width="{wide}" height="{tall}"'
    filled = f'fill="{colour}" fill-opacity="0.35" stroke="{colour}"'
    return [
        f'<path d="M{centre} {most}V{least}" stroke="{colour}"/>',
        f"<rect {placed} {filled}><title>{escape(said)}</title></rect>",
        f'<path d="M{left} {half}h{wide}" stroke="{colour}" stroke-width="1.6"/>',
        *(f'<circle cx="{centre}" cy="{at}" r="1.2" fill="{colour}"/>' for at in outside),
    ]


def quantile(values: Sequence[float], part: float) -> float:
    """Of sorted values; between two of them in proportion."""
    at = part * (len(values) - 1)
    below = values[floor(at)]
    return below + (values[ceil(at)] - below) * (at - floor(at))


def lines(
    title: str,
    across: str,
    up: str,
    drawn: Mapping[str, Points],
    *,
    marks: Sequence[ChartMark] = (),
    dots: bool = False,
) -> str:
    """Values over something, such as time."""
    xs, ys = _scales(drawn, [mark.at for mark in marks])
    parts = [*_frame(title, across, up), *_up_axis(ys), *_across_axis(xs), *_marks(marks, xs)]
    for number, points in enumerate(drawn.values()):
        parts.append(_path(points, xs, ys, _stroke(number)))
        if dots:
            parts += _dots(points, xs, ys, COLOURS[number % len(COLOURS)], 3)
    return _finished(parts, list(drawn), as_lines=True)


def histogram(
    title: str, across: str, up: str, columns: Sequence[tuple[float, float, float]], curve: Points
) -> str:
    """Columns (from, to, height), and a curve over them."""
    corners = {"": [(x, height) for low, high, height in columns for x in (low, high)], "curve": curve}
    xs, ys = _scales(corners, [], zero=False)
    parts = [*_frame(title, across, up), *_up_axis(ys), *_across_axis(xs)]
    for low, high, height in columns:
        x, y = xs.place(low), ys.place(height)
        wide, tall = max(round(xs.place(high) - x, 1), 0.3), round(HEIGHT - BOTTOM - y, 1)
        parts.append(f'<rect x="{x}" y="{y}" width="{wide}" height="{tall}" fill="{COLOURS[0]}"/>')
    parts.append(_path(curve, xs, ys, _stroke(1)))
    return _finished(parts, ["measured", "normal"])


def against(title: str, across: str, up: str, points: Points, line: Points, named: tuple[str, str]) -> str:
    """Points, and the line on which they would lie if the two axes' distributions were the same."""
    xs, ys = _scales({"points": points, "line": line}, [], zero=False)
    parts = [
        *_frame(title, across, up),
        *_up_axis(ys),
        *_across_axis(xs),
        *_dots(points, xs, ys, COLOURS[0], 2),
    ]
    parts.append(_path(line, xs, ys, _stroke(1)))
    return _finished(parts, list(named))


def number_text(value: float) -> str:
    """As exact as a reader can use."""
    if value == 0:
        return "0"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _short(value: float) -> str:
    return (
        f"{value / 1e6:.3g}M"
        if value >= 1e6
        else f"{value / 1e3:.3g}k"
        if value >= 1e4
        else number_text(value)
    )


def _scales(
    drawn: Mapping[str, Points], more: Sequence[float], *, zero: bool = True
) -> tuple[_Scale, _Scale]:
    everything = [point for points in drawn.values() for point in points]
    xs = _Scale.over([*(x for x, _ in everything), *more], LEFT, WIDTH - RIGHT, zero=zero, tight=True)
    return xs, _Scale.over([y for _, y in everything], HEIGHT - BOTTOM, TOP, zero=zero)


def _frame(title: str, across: str, up: str) -> list[str]:
    middle = (TOP + HEIGHT - BOTTOM) // 2
    return [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 20, title, 'font-size="13" font-weight="bold"'),
        _text((LEFT + WIDTH - RIGHT) // 2, HEIGHT - 12, across, f'text-anchor="middle" fill="{_QUIET}"'),
        f'<g transform="translate(14,{middle}) rotate(-90)">'
        + _text(0, 0, up, f'text-anchor="middle" fill="{_QUIET}"')
        + "</g>",
    ]


def _up_axis(ys: _Scale) -> list[str]:
    parts = []
    for value in ys.ticks():
        at = ys.place(value)
        parts.append(f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="{_GRID}"/>')
        parts.append(_text(LEFT - 6, at + 4, _tick(value, ys.step), 'text-anchor="end"'))
    return parts


def _across_axis(xs: _Scale) -> list[str]:
    parts = []
    for value in xs.ticks():
        at = xs.place(value)
        parts.append(f'<path d="M{at} {TOP}V{HEIGHT - BOTTOM}" stroke="{_GRID}"/>')
        parts.append(_text(at, HEIGHT - BOTTOM + 16, _tick(value, xs.step), 'text-anchor="middle"'))
    return parts


def _marks(marks: Sequence[ChartMark], xs: _Scale) -> list[str]:
    parts = []
    for number, mark in enumerate(marks):
        at = xs.place(mark.at)
        parts.append(f'<path d="M{at} {TOP}V{HEIGHT - BOTTOM}" stroke="#b00020" stroke-dasharray="4 3"/>')
        # A mark near the right edge would push its word out of the picture.
        anchor, aside = ("end", -4) if at > (WIDTH - RIGHT + LEFT) / 2 else ("start", 4)
        parts.append(
            _text(
                at + aside, TOP + 12 + 13 * (number % 3), mark.text, f'fill="#b00020" text-anchor="{anchor}"'
            )
        )
    return parts


def _dots(points: Points, xs: _Scale, ys: _Scale, colour: str, radius: int) -> list[str]:
    return [
        f'<circle cx="{xs.place(x)}" cy="{ys.place(y)}" r="{radius}" fill="{colour}"/>' for x, y in points
    ]


def _path(points: Points, xs: _Scale, ys: _Scale, style: str) -> str:
    if not points:
        return ""
    placed = "L".join(f"{xs.place(x)} {ys.place(y)}" for x, y in points)
    return f'<path d="M{placed}" fill="none" {style}/>'


def _under(x: float, name: str, slanted: bool) -> str:
    y = HEIGHT - BOTTOM + 15
    if not slanted:
        return _text(x, y, name, 'text-anchor="middle"')
    return _text(x, y, name, f'text-anchor="end" transform="rotate(-25 {x} {y})"')


def _over(x: float, y: float, text: str, width: float) -> str:
    """A bar's number, upright where the bar is narrow."""
    style = f'font-size="9" fill="{_QUIET}"'
    if len(text) * 5.5 <= width:
        return _text(x, y, text, f'text-anchor="middle" {style}')
    return _text(x + 3, y, text, f'transform="rotate(-90 {x + 3} {y})" {style}')


def _stroke(number: int) -> str:
    dashes = _DASHES[number // len(COLOURS) % len(_DASHES)]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.6"{dashed}'


def _finished(parts: list[str], names: Sequence[str], *, as_lines: bool = False) -> str:
    """With a legend of all names but those without a word."""
    row = min(17.0, (HEIGHT - TOP) / max(len(names), 1))
    y = TOP + 10.0
    for number, name in enumerate(names):
        if not name:
            continue
        left = WIDTH - RIGHT + 10
        if as_lines:
            parts.append(f'<path d="M{left - 3} {y - 4}h15" {_stroke(number)}/>')
        else:
            colour = COLOURS[number % len(COLOURS)]
            parts.append(f'<rect x="{left}" y="{y - 8}" width="9" height="9" fill="{colour}"/>')
        parts.append(_text(left + 16, y, name))
        y = round(y + row, 1)
    return "\n".join([*filter(None, parts), "</svg>", ""])


def _tick(value: float, step: float) -> str:
    value = 0.0 if abs(value) < step / 1e6 else value
    return f"{value:,.0f}" if step >= 1 else f"{value:.{max(-floor(log10(step)), 0)}f}"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>' if text else ""
