"""What a report consists of, and its two shapes: one HTML page that needs no other file, and Markdown.

Owns the shapes. Invariant: all text is escaped here; a `Chart`'s SVG is our own. Must not know: what is
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text; all but the first column are aligned to the right in HTML if `numbers`."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    svg: str
    caption: str = ""
    """Which scenario, machine, versions and commit the figure is of."""


Part = Text | Table | Chart


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    parts: Sequence[Part]
    folded: bool = False
    """Shown in HTML when somebody opens it."""


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    sections: Sequence[Section]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; }
body { margin: 2rem auto; max-width: 84rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2, summary { font-size: 1.15rem; font-weight: 600; margin: 2rem 0 .6rem; }
summary { cursor: pointer; margin: 1rem 0 .4rem; }
table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #dfe3e8; text-align: left; vertical-align: top; }
table.numbers th:not(:first-child), table.numbers td:not(:first-child) { text-align: right; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; width: 40rem; max-width: 100%; }
figure svg { width: 100%; height: auto; border: 1px solid #e3e6ea; }
figcaption { font-size: .75rem; color: #5b6470; }
.warning { background: #fff1f0; border-left: 4px solid #b00020; padding: .5rem .8rem; }
.scroll { overflow-x: auto; }
"""


def html(document: Document) -> str:
    title = escape(document.title)
    body = "\n".join(_section(each) for each in document.sections)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{body}\n</body></html>\n"
    )


def markdown(document: Document) -> str:
    """Text and tables; the pictures are in the page."""
    out = [f"# {document.title}"]
    for section in document.sections:
        shown = [_markdown(part) for part in section.parts if not isinstance(part, Chart)]
        if shown:
            out += [f"## {section.title}", *shown]
    return "\n\n".join(out) + "\n"


def _section(section: Section) -> str:
    parts, charts = [], []
    for part in section.parts:
        if isinstance(part, Chart):
            charts.append(f"<figure>{part.svg}<figcaption>{escape(part.caption)}</figcaption></figure>")
        else:
            parts.append(_html(part))
    if charts:
        parts.append(f'<div class="charts">{"".join(charts)}</div>')
    body, title = "\n".join(parts), escape(section.title)
    if section.folded:
        return f"<details><summary>{title}</summary>\n{body}\n</details>"
    return f"<section><h2>{title}</h2>\n{body}\n</section>"


def _html(part: Text | Table) -> str:
    if isinstance(part, Text):
        return (
            f'<p class="warning">{escape(part.text)}</p>' if part.warning else f"<p>{escape(part.text)}</p>"
        )
    head = "".join(f"<th>{escape(cell)}</th>" for cell in part.head)
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in part.rows)
    kind = ' class="numbers"' if part.numbers else ""
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    table = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _markdown(part: Text | Table) -> str:
    if isinstance(part, Text):
        return f"**{part.text}**" if part.warning else part.text
    rule = ["---", *("---:" if part.numbers else "---" for _ in part.head[1:])]
    rows = [part.head, rule, *part.rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
