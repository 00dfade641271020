"""Sparkplug B payloads, made here byte by byte from the published field numbers."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.pipeline.payloads.protobuf import fields, varint
from brokerweave.pipeline.payloads.sparkplug import SCHEMA, Birth, SparkplugDecoder, births

NOW = 1_769_860_800_000


def number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(at: int, value: int | bytes, wire: int | None = None) -> bytes:
    if isinstance(value, int):
        return number(at << 3) + number(value)
    return (
        number(at << 3 | (2 if wire is None else wire))
        + (number(len(value)) if wire is None else b"")
        + value
    )


def metric(*parts: bytes) -> bytes:
    return field(2, b"".join(parts))


def decode(
    *messages: tuple[str, bytes], known: dict[str, list[Birth]] | None = None
) -> tuple[list[dict[str, Any]], list[str | None]]:
    table = batch(*messages)
    found = SparkplugDecoder(known or {}).decode(table)
    made = pa.RecordBatch.from_arrays(found.columns, schema=SCHEMA).to_pylist()
    return made, found.errors.to_pylist()


def batch(*messages: tuple[str, bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": [topic for topic, _ in messages],
            "payload": pa.array([payload for _, payload in messages], pa.binary()),
            "received": pa.array(range(len(messages)), pa.timestamp("us", "UTC")),
            "sequence": pa.array(range(len(messages)), pa.int64()),
        }
    )


BIRTH = (
    field(1, NOW)
    + metric(field(1, b"bdSeq"), field(4, 4), field(11, 7))
    + metric(field(1, b"temperature"), field(2, 1), field(4, 3), field(10, 2**32 - 5))
    + field(3, 0)
)
DATA = field(1, NOW) + metric(field(2, 1), field(3, NOW + 5), field(10, 2**32 - 6)) + field(3, 200)


def test_a_birth_gives_names_sequence_and_signed_values() -> None:
    [row], [reason] = decode(("spBv1.0/plant/NBIRTH/press", BIRTH))
    assert reason is None
    assert (row["sp_group"], row["sp_type"], row["sp_node"], row["sp_device"]) == (
        "plant",
        "NBIRTH",
        "press",
        None,
    )
    assert (row["sp_seq"], row["sp_bdseq"], row["sp_time"]) == (0, 7, datetime.fromtimestamp(NOW / 1000, UTC))
    assert [(each["name"], each["datatype"], each["value"]) for each in row["metrics"]] == [
        ("bdSeq", "Int64", 7.0),
        ("temperature", "Int32", -5.0),
    ]


def test_data_gets_name_and_type_from_the_birth_before_it() -> None:
    renamed = BIRTH.replace(b"temperature", b"tempErature")
    messages = [
        ("spBv1.0/plant/NBIRTH/press", BIRTH),
        ("spBv1.0/plant/NDATA/press", DATA),
        ("spBv1.0/plant/NBIRTH/press", renamed),
        ("spBv1.0/plant/NDATA/press", DATA),
        ("spBv1.0/plant/NDATA/other", DATA),
    ]
    made, reasons = decode(*messages, known=births(batch(*messages)))
    assert reasons == [None] * 5
    found = [(row["metrics"][0]["name"], row["metrics"][0]["value"]) for row in made]
    assert found[1] == ("temperature", -6.0)
    assert found[3] == ("tempErature", -6.0)
    # Nobody explained this alias: the value stays, as it travelled.
    assert found[4] == (None, float(2**32 - 6))
    assert made[4]["metrics"][0]["alias"] == 1


@pytest.mark.parametrize(
    ("datatype", "encoded", "value", "text"),
    [
        (9, field(12, struct.pack("<f", 1.5), 5), 1.5, None),
        (10, field(13, struct.pack("<d", -2.25), 1), -2.25, None),
        (10, field(13, struct.pack("<d", float("nan")), 1), None, "nan"),
        (11, field(14, 1), 1.0, None),
        (12, field(15, "grün".encode()), None, "grün"),
        (17, field(16, b"\x00\x01"), None, "AAE="),
        (4, field(11, 2**64 - 1), -1.0, None),
        (8, field(11, 2**64 - 1), float(2**64 - 1), str(2**64 - 1)),
        (1, field(10, 0xFF), -1.0, None),
        (3, field(10, 5) + field(7, 1), None, None),
        (16, field(17, b"x"), None, "eA=="),
    ],
)
def test_each_kind_of_value_is_read_as_its_type_says(
    datatype: int, encoded: bytes, value: float | None, text: str | None
) -> None:
    payload = metric(field(1, b"m"), field(4, datatype), encoded)
    [row], [reason] = decode(("spBv1.0/g/DDATA/n/d", payload))
    assert reason is None
    [found] = row["metrics"]
    assert (found["value"], found["text"]) == (value, text)
    assert row["sp_device"] == "d"


def test_a_hosts_state_is_text() -> None:
    [row], [reason] = decode(("spBv1.0/STATE/host", b'{"online":true}'))
    assert (reason, row["sp_type"], row["sp_node"], row["_rest"]) == (
        None,
        "STATE",
        "host",
        '{"online":true}',
    )


@pytest.mark.parametrize("cut", range(1, len(DATA)))
def test_a_cut_payload_is_a_shorter_message_or_a_reason(cut: int) -> None:
    [row], [reason] = decode(("spBv1.0/g/NDATA/n", DATA[:cut]))
    whole = list(fields_or_none(DATA[:cut]))
    assert (reason is None) == (whole != [None])
    assert (row["sp_type"] == "NDATA") == (reason is None)


def fields_or_none(data: bytes) -> list[Any]:
    try:
        return list(fields(data))
    except ValueError:
        return [None]


@given(st.integers(0, 2**64 - 1), st.binary(max_size=4))
def test_a_varint_is_read_as_it_was_written(value: int, after: bytes) -> None:
    assert varint(number(value) + after, 0) == (value, len(number(value)))


def test_a_length_beyond_the_payload_is_not_believed() -> None:
    with pytest.raises(ValueError, match="ends after"):
        list(fields(number(2 << 3 | 2) + number(2**62)))
