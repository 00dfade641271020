"""Bars, lines, points and histograms."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from brokerweave.bench.report import charts
from brokerweave.bench.report.charts import ChartMark

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str | None]:
    return [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_bar_is_as_tall_as_its_value_and_has_the_colour_of_its_series() -> None:
    svg = charts.bars("t", "y", {"B": {"pf": 100, "sf": 200}, "C": {"sf": 400}})
    drawn = [each for each in ElementTree.fromstring(svg).findall(f"{SVG}rect") if len(each)]
    first, second, third = (float(each.attrib["height"]) for each in drawn)
    assert [second, third] == pytest.approx([2 * first, 4 * first], abs=0.2)
    colours = [each.attrib["fill"] for each in drawn]
    assert colours[0] != colours[1] == colours[2]
    assert {"B", "C", "pf", "sf", "400"} <= set(texts(svg))


def test_names_that_would_run_into_each_other_are_slanted() -> None:
    crowded = {f"pattern number {n}": {"": 1.0} for n in range(12)}
    assert "rotate(-25" in charts.bars("t", "y", crowded)
    assert "rotate(-25" not in charts.bars("t", "y", {"A": {"": 1.0}, "B": {"": 1.0}})


def test_lines_beyond_the_colours_are_dashed_so_that_no_two_look_the_same() -> None:
    svg = charts.lines("t", "x", "y", {f"line {n}": [(0, n), (1, n)] for n in range(8)})
    paths = [
        each.attrib for each in ElementTree.fromstring(svg).findall(f"{SVG}path") if "fill" in each.attrib
    ]
    styles = [(each["stroke"], each.get("stroke-dasharray")) for each in paths]
    assert len(set(styles)) == 8


def test_an_event_is_marked_where_it_happened_with_its_words() -> None:
    svg = charts.lines("t", "x", "y", {"out": [(0, 1), (10, 1)]}, marks=[ChartMark(5, "killed <b>")])
    dashed = [e for e in ElementTree.fromstring(svg).findall(f"{SVG}path") if e.get("stroke") == "#b00020"]
    middle = (charts.LEFT + charts.WIDTH - charts.RIGHT) / 2
    assert dashed[0].attrib["d"].startswith(f"M{middle} ")
    assert "killed <b>" in texts(svg)


def test_negative_values_have_a_place_below_zero() -> None:
    svg = charts.against("t", "x", "y", [(-2, -5), (2, 5)], [(-2, -4), (2, 4)], ("measured", "normal"))
    low, high = ElementTree.fromstring(svg).findall(f"{SVG}circle")
    assert float(low.attrib["cy"]) > float(high.attrib["cy"])
    assert {"-6", "-2", "6"} <= set(texts(svg))


def test_pictures_of_nothing_and_of_one_value_are_still_pictures() -> None:
    for svg in (
        charts.bars("t", "y", {}),
        charts.lines("t", "x", "y", {}),
        charts.lines("t", "x", "y", {"one": [(3, 0)]}),
        charts.histogram("t", "x", "y", [(1.0, 1.0, 1.0)], []),
        charts.against("t", "x", "y", [], [], ("a", "b")),
    ):
        assert ElementTree.fromstring(svg).tag == f"{SVG}svg"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234.5, "1,234"), (12.34, "12.3"), (0.01234, "0.0123"), (2.0, "2")]
)
def test_numbers_are_as_exact_as_a_reader_can_use(value: float, text: str) -> None:
    assert charts.number_text(value) == text


def test_a_box_spans_the_quartiles_and_what_lies_far_outside_is_a_point() -> None:
    svg = charts.boxes("t", "y", {"10": {"a": [0, 1, 2, 3, 4], "b": [2, 2, 2, 2, 100]}, "20": {"a": []}})
    root = ElementTree.fromstring(svg)
    first, second = (each for each in root.findall(f"{SVG}rect") if len(each))
    assert float(first.attrib["height"]) > float(second.attrib["height"])
    assert [each.text for each in root.iter(f"{SVG}title")] == [
        "10 a: median 2, most 4",
        "10 b: median 2, most 100",
    ]
    assert len(root.findall(f"{SVG}circle")) == 1
    assert {"10", "20", "a", "b"} <= set(texts(svg))


def test_a_quantile_lies_between_two_values_in_proportion() -> None:
    assert [charts.quantile([1.0, 2.0, 4.0], part) for part in (0, 0.5, 0.75, 1)] == [1.0, 2.0, 3.0, 4.0]
