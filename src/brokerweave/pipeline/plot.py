"""Small line charts as SVG: made of text, so the same numbers give the same file.

Owns the drawing. Must not know: what is drawn.
"""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10

NAMESPACE = "http://www.w3.org/2000/svg"
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 36, 48
COLOURS = (
    "#0b6fa4", "#c2410c", "#2f7d32", "#7b3fa0", "#8a6d00",
    "#444444", "#d81b7a", "#12a3a3", "#a1887f", "#5b6ee1",
)  # fmt: skip

Points = list[tuple[float, float]]


def chart(title: str, across: str, up: str, lines: dict[str, Points], *, linear: bool = False) -> str:
    """One SVG. On logarithmic axes what is not above zero has no place; linear ones begin at zero."""
    axis = _Linear if linear else _Axis
    shown = {name: [p for p in points if linear or min(p) > 0] for name, points in lines.items()}
    shown = {name: points for name, points in shown.items() if points}
    xs = axis([x for points in shown.values() for x, _ in points], LEFT, WIDTH - RIGHT)
    ys = axis([y for points in shown.values() for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 20, title, 'font-size="14" font-weight="bold"'),
        _text((LEFT + WIDTH - RIGHT) // 2, HEIGHT - 10, across, 'text-anchor="middle"'),
        f'<g transform="translate(16,{(TOP + HEIGHT - BOTTOM) // 2}) rotate(-90)">'
        + _text(0, 0, up, 'text-anchor="middle"')
        + "</g>",
    ]
    for value in xs.marks():
        at = xs.place(value)
        parts.append(f'<path d="M{at} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(_text(at, HEIGHT - BOTTOM + 16, _number(value), 'text-anchor="middle"'))
    for value in ys.marks():
        at = ys.place(value)
        parts.append(f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, at + 4, _number(value), 'text-anchor="end"'))
    for number, (name, points) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [(xs.place(x), ys.place(y)) for x, y in sorted(points)]
        path = "M" + "L".join(f"{x} {y}" for x, y in placed)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(_text(WIDTH - RIGHT + 8, TOP + 12 + 18 * number, name, f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """From values to pixels; at least from one power of ten to the next."""

    def __init__(self, values: list[float], start: int, end: int) -> None:
        self._low = floor(log10(min(values, default=1)))
        self._high = max(ceil(log10(max(values, default=1))), self._low + 1)
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        part = (log10(value) - self._low) / (self._high - self._low)
        return round(self._start + part * (self._end - self._start), 1)

    def marks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


class _Linear(_Axis):
    """From zero to a round number."""

    def __init__(self, values: list[float], start: int, end: int) -> None:
        most = max([*values, 0.0]) or 1.0
        power = 10.0 ** floor(log10(most))
        self._step = next(step * power for step in (0.25, 0.5, 1.0, 2.0) if most <= 5 * step * power)
        self._top = self._step * ceil(most / self._step)
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        return round(self._start + value / self._top * (self._end - self._start), 1)

    def marks(self) -> list[float]:
        return [self._step * number for number in range(round(self._top / self._step) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'
