"""What a sample makes columns of."""

from __future__ import annotations

from typing import Any

import pytest

from brokerweave.pipeline.payloads.fields import LONGEST_SCHEMA, column_of, infer


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "double"),
        ([1, 2.5], "double"),
        ([1, 2**60], "long"),
        ([2**70], "json"),
        ([True], "boolean"),
        (["a", None], "string"),
        ([{"x": 1}], "json"),
        ([1, "a"], "json"),
        ([True, 1], "json"),
    ],
)
def test_a_members_type_is_the_one_that_all_its_values_fit(values: list[Any], kind: str) -> None:
    assert infer({"v": value} for value in values) == {"v": kind}


def test_a_member_that_is_always_null_or_cannot_name_a_column_stays_in_the_rest() -> None:
    assert infer([{"n": None, "a b": 1, "a.b": 1, "ok": 1, "OK": 2}]) == {"OK": "double"}


def test_the_number_of_columns_has_a_bound() -> None:
    assert len(infer({f"m{number}": 1} for number in range(LONGEST_SCHEMA + 50))) == LONGEST_SCHEMA


def test_a_member_does_not_hide_a_column_of_silver() -> None:
    assert (column_of("topic"), column_of("Date"), column_of("temperature")) == (
        "payload_topic",
        "payload_Date",
        "temperature",
    )
