from __future__ import annotations

from dataclasses import fields

from benchmarks import scale

from brokerweave.sim.scale import ScaleOptions


def test_every_case_is_made_of_options_that_a_run_has() -> None:
    known = {each.name for each in fields(ScaleOptions)}
    assert all(case.keys() <= known for case in scale.cases())


def test_a_case_is_named_by_its_arguments_without_the_defaults() -> None:
    named = scale.key({"nodes": 10, "shape": "binary", "strategy": "pf", "barrier": False, "churn": 8})
    assert named == "--async --churn 8 --nodes 10 --strategy pf"


def test_what_is_left_out_as_default_is_the_default() -> None:
    default = ScaleOptions()
    left_out = {"shape": default.shape, "strategy": default.strategy, "wide": default.wide}
    assert scale.key({**left_out, "churn": default.churn, "barrier": default.barrier}) == ""


def test_a_table_replaces_what_the_page_had_between_its_marks_and_nothing_else() -> None:
    page = "a\n<!-- table: one -->\nold\n<!-- end -->\nb\n<!-- table: two -->\nkept\n<!-- end -->\n"
    assert scale.fill(page, {"one": "| new |"}) == page.replace("old", "| new |")
