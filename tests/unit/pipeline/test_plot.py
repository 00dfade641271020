"""Charts as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from brokerweave.pipeline.plot import chart

SVG = "{http://www.w3.org/2000/svg}"


def test_a_chart_has_a_point_for_each_value_above_zero_and_a_name_for_each_line() -> None:
    drawn = chart("t", "x", "y", {"one": [(10, 5), (100, 0)], "a < b": [(10, 1), (100, 2000)], "none": []})
    root = ElementTree.fromstring(drawn)
    assert len(root.findall(f"{SVG}circle")) == 3
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert "a < b" in texts
    assert "none" not in texts


def test_larger_values_stand_higher_and_farther_right() -> None:
    root = ElementTree.fromstring(chart("t", "x", "y", {"one": [(100, 70), (10, 7)]}))
    (x1, y1), (x2, y2) = [
        (float(each.attrib["cx"]), float(each.attrib["cy"])) for each in root.findall(f"{SVG}circle")
    ]
    assert x1 < x2
    assert y1 > y2


def test_linear_axes_begin_at_zero_and_keep_values_of_zero() -> None:
    drawn = chart("t", "x", "y", {"one": [(0, 0), (30, 4200), (60, 8400)]}, linear=True)
    root = ElementTree.fromstring(drawn)
    places = [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in root.findall(f"{SVG}circle")]
    (x1, y1), (x2, y2), (x3, y3) = places
    assert x2 - x1 == pytest.approx(x3 - x2)
    assert y1 - y2 == pytest.approx(y2 - y3)
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {"0", "2,000", "10,000"} <= set(texts)


def test_a_chart_of_nothing_is_still_a_chart() -> None:
    for linear in (False, True):
        assert ElementTree.fromstring(chart("t", "x", "y", {}, linear=linear)).tag == f"{SVG}svg"
