"""A report's two shapes."""

from __future__ import annotations

from html.parser import HTMLParser

from brokerweave.bench.report.document import Chart, Document, Section, Table, Text, html, markdown

DOCUMENT = Document(
    "Run <1>",
    [
        Section("Results", [Text("a & b", warning=True), Table(("name", "in/s"), [["C|sf", "<5>"]])]),
        Section("Pictures", [Chart("<svg></svg>", "commit <abc>")], folded=True),
    ],
)


class Tags(HTMLParser):
    """Which tags are there, and what they refer to outside."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_has_everything_in_it_and_needs_nothing_else() -> None:
    page = html(DOCUMENT)
    tags = Tags()
    tags.feed(page)
    assert {"svg", "table", "details", "figcaption"} <= set(tags.seen)
    assert tags.outside == []
    assert not {"script", "link"} & set(tags.seen)


def test_text_is_escaped_wherever_it_stands() -> None:
    page = html(DOCUMENT)
    for text in ("Run &lt;1&gt;", "a &amp; b", "&lt;5&gt;", "commit &lt;abc&gt;"):
        assert text in page


def test_markdown_has_the_tables_and_leaves_the_pictures_to_the_page() -> None:
    text = markdown(DOCUMENT)
    assert "| name | in/s |\n| --- | ---: |\n| C\\|sf | <5> |" in text
    assert "**a & b**" in text
    assert "svg" not in text
    assert "Pictures" not in text
