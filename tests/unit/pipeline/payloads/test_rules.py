"""Rules: which payload is read how, and the columns that come of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from brokerweave.edgelog.arrow import SCHEMA as BRONZE
from brokerweave.errors import ConfigError
from brokerweave.pipeline.payloads.rules import ERROR, META, PayloadRule, RuleSet

T0 = datetime(2026, 1, 31, 12, tzinfo=UTC)


def rows(*messages: tuple[str, bytes]) -> pa.RecordBatch:
    made = [
        {
            "log_id": "L",
            "epoch": 1,
            "sequence": number,
            "site": "north",
            "client": "c",
            "topic": topic,
            "payload": payload,
            "received": T0 + timedelta(seconds=number),
            "qos": 1,
            "retain": False,
            "dup": False,
            "packet_id": number,
            "properties": [],
            "schema_version": 1,
        }
        for number, (topic, payload) in enumerate(messages)
    ]
    batch = pa.RecordBatch.from_pylist(made, schema=BRONZE)
    return batch.append_column("payload_hash", pa.array([0] * len(made), pa.int64()))


def decoded(rules: RuleSet, *messages: tuple[str, bytes]) -> list[dict[str, Any]]:
    found = pa.Table.from_batches(rules.decode(rows(*messages)), schema=rules.output)
    return sorted(found.to_pylist(), key=lambda row: row["sequence"])


def test_the_first_rule_that_matches_decodes_and_a_topic_without_rule_is_left_out() -> None:
    rules = RuleSet(
        [
            PayloadRule("numbers", ("plain/#",), "number"),
            PayloadRule("objects", ("plain/x", "json/+"), "json", {"t": "double"}),
        ]
    )
    found = decoded(
        rules, ("plain/x", b"5"), ("json/a", b'{"t":1,"u":2}'), ("other", b"6"), ("json/a/b", b"7")
    )
    assert [(row["topic"], row["value"], row["t"], row["_rest"]) for row in found] == [
        ("plain/x", 5.0, None, None),
        ("json/a", None, 1.0, '{"u":2}'),
    ]
    assert rules.schema.names == [*META.names, "value", "t", "_rest"]


def test_a_row_in_error_keeps_its_payload_and_the_others_do_not() -> None:
    found = decoded(RuleSet([PayloadRule(fields={})]), ("a", b"\xff"), ("a", b"{}"))
    assert [(row[ERROR] is None, row["_payload"]) for row in found] == [(False, b"\xff"), (True, None)]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("double", T0.timestamp() * 1000),
        ("long", int(T0.timestamp())),
        ("string", "2026-01-31T13:00:00+01:00"),
        ("timestamp", T0.isoformat()),
    ],
)
def test_the_event_time_is_the_payloads_and_the_receive_time_stays(kind: str, said: object) -> None:
    rules = RuleSet([PayloadRule(fields={"ts": kind}, event_time="ts")])
    payload = json.dumps({"ts": said}).encode()
    first, second = decoded(rules, ("a", b"{}"), ("a", payload))
    assert (first["event_time"], first["received"]) == (T0, T0)
    assert (second["event_time"], second["received"]) == (T0, T0 + timedelta(seconds=1))


@pytest.mark.parametrize("said", [0, -5, 5e17, 1e300, 17])
def test_a_clock_that_was_never_set_is_not_believed(said: float) -> None:
    rules = RuleSet([PayloadRule(fields={"ts": "double"}, event_time="ts")])
    [row] = decoded(rules, ("a", json.dumps({"ts": said}).encode()))
    assert (row["event_time"], row[ERROR]) == (T0, None)


def test_a_member_that_another_rule_has_with_another_type_is_not_inferred() -> None:
    others = RuleSet([PayloadRule("one", fields={"t": "string"})]).schema
    assert PayloadRule("two").infer([b'{"t":1,"u":1}', b"rubbish"], others) == {"u": "double"}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: PayloadRule(payload="xml"), "unknown payload format 'xml'"),
        (lambda: PayloadRule(topics=()), "no topics"),
        (lambda: PayloadRule(topics=("a/#/b",)), "rule all: "),
        (lambda: PayloadRule(payload="raw", fields={"a": "double"}), "columns of its own"),
        (
            lambda: PayloadRule(fields={"a": "double"}, event_time="b"),
            "event_time 'b' is not among its fields",
        ),
        (
            lambda: RuleSet(
                [PayloadRule("a", fields={"value": "string"}), PayloadRule("b", payload="number")]
            ),
            "rule b has column value as double, another as string",
        ),
    ],
)
def test_rules_that_cannot_be_are_refused_in_one_line(made: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        made()
