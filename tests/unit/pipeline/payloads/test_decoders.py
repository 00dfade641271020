"""Every decoder: any bytes are answered with columns or a reason, and what was encoded comes back."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerweave.errors import ConfigError
from brokerweave.pipeline.payloads import FORMATS, REST, Decoder, decoder

FIELDS = {"t": "double", "n": "long", "ok": "boolean", "s": "string", "at": "timestamp", "j": "json"}


def rows(payloads: list[bytes], topic: str = "spBv1.0/g/NDATA/node") -> pa.RecordBatch:
    return pa.record_batch(
        {"payload": pa.array(payloads, pa.binary()), "topic": pa.array([topic] * len(payloads))}
    )


def decoded(decode: Decoder, payloads: list[bytes]) -> tuple[list[dict[str, Any]], list[str | None]]:
    found = decode.decode(rows(payloads))
    table = pa.RecordBatch.from_arrays(found.columns, schema=decode.schema)
    return table.to_pylist(), found.errors.to_pylist()


def made(payload: str) -> Decoder:
    return decoder(payload, FIELDS if payload in ("json", "cbor") else None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from([*FIELDS, "other", "T"]), json_values, max_size=6)
hostile = (
    st.binary(max_size=60)
    | st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | objects.map(lambda value: json.dumps(value).encode())
    | objects.map(cbor2.dumps)
)
NASTY = [
    b"",
    b"[" * 100_000,
    b'{"t":1e999}',
    b'{"at":-6.22e16}',  # before the year 1
    b'{"s":"\\ud800","\\ud800":"\\ud800"}',
    b'{"n":' + b"9" * 5_000 + b"}",
    cbor2.dumps({"t": 1 << 40_000}),
    cbor2.dumps({"other": 1 << 40_000, "at": 1 << 40_000}),
    b"\xa1\x61j\xd8\x1c\x81\xd8\x1d\x00",  # a list that holds itself
    b"\xa1\x61x\xd8\x1c\x81\xd8\x1d\x00",
    b"\xa1\x61t\xc4\x82\x1a\x7f\xff\xff\xff\x03",  # 3e2147483647
    b"\xbb" + b"\xff" * 8,
]


def check(payload: str, payloads: list[bytes]) -> None:
    """Columns of the promised types, for each row a reason or none, and the same as if it came alone."""
    decode = made(payload)
    together, reasons = decoded(decode, payloads)
    assert all(reason is None or reason.isprintable() for reason in reasons)
    for number, each in enumerate(payloads):
        (alone,), (reason,) = decoded(decode, [each])
        assert repr(alone) == repr(together[number])
        assert reason == reasons[number]


@pytest.mark.parametrize("payload", FORMATS)
@settings(max_examples=30)
@given(payloads=st.lists(hostile, min_size=1, max_size=3))
def test_any_bytes_become_a_row_or_a_reason_whatever_is_beside_them(
    payload: str, payloads: list[bytes]
) -> None:
    check(payload, payloads)


@pytest.mark.parametrize("payload", FORMATS)
def test_payloads_made_to_break_a_decoder_become_a_row_or_a_reason(payload: str) -> None:
    check(payload, NASTY)


@given(
    value=st.fixed_dictionaries(
        {},
        optional={
            "t": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
            "n": st.integers(-(2**63), 2**63 - 1),
            "ok": st.booleans(),
            "s": st.text(),
            "new": json_values,
        },
    ),
    encode=st.sampled_from([("json", lambda value: json.dumps(value).encode()), ("cbor", cbor2.dumps)]),
)
def test_an_object_comes_back_as_it_was_encoded(value: dict[str, Any], encode: Any) -> None:
    [row], [reason] = decoded(made(encode[0]), [encode[1](value)])
    assert reason is None
    assert {name: row[name] for name in ("t", "n", "ok", "s")} == {
        name: value.get(name) for name in ("t", "n", "ok", "s")
    }
    rest = None if row[REST] is None else json.loads(row[REST])
    assert rest == ({"new": value["new"]} if "new" in value else None)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xff{}", "not UTF-8 at byte 0"),
        (b"[1]", "not a JSON object"),
        (b'{"t":NaN}', "not JSON: NaN is not JSON"),
        (b'{"t":"21"}', "field t: '21' is no double"),
        (b'{"t":true}', "field t: True is no double"),
        (b'{"t":9007199254740993}', "field t: 9007199254740993 is no double"),
        (b'{"n":1.5}', "field n: 1.5 is no long"),
        (b'{"n":9223372036854775808}', "field n: 9223372036854775808 is no long"),
        (b'{"at":"yesterday"}', "field at: 'yesterday' is no timestamp"),
        (b'{"s":"\\ud800"}', "field s: '\\ud800' is no string"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_json_row_that_does_not_fit_says_why_and_leaves_its_neighbours_alone(
    payload: bytes, reason: str
) -> None:
    found, reasons = decoded(made("json"), [b'{"t":1}', payload, b'{"t":2,"n":3.0}'])
    assert reasons == [None, reason, None]
    assert [(row["t"], row["n"]) for row in (found[0], found[2])] == [(1.0, None), (2.0, 3)]


def test_times_are_read_in_any_unit_and_as_text() -> None:
    texts = ['"2026-01-31T12:00:00Z"', '"2026-01-31T13:00:00+01:00"', "1769860800", "1769860800000"]
    found, reasons = decoded(made("json"), [b'{"at":%s}' % text.encode() for text in texts])
    assert reasons == [None] * 4
    assert len({row["at"] for row in found}) == 1


def test_what_json_has_no_word_for_is_kept_as_text_in_the_rest() -> None:
    [row], [reason] = decoded(
        decoder("cbor", {}), [cbor2.dumps({"b": b"\x00\x01", "x": math.inf, 5: [b"z"]})]
    )
    assert reason is None
    assert json.loads(row[REST]) == {"b": "AAE=", "x": None, "5": ["eg=="]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("21.5", 21.5),
        (" +3\n", 3.0),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("5.", 5.0),
        ("nan", None),
        ("1_000", None),
        ("1e999", None),
        ("on", None),
        ("", None),
        ("٣", None),
    ],
)
def test_a_scalar_is_a_number_or_a_text(text: str, value: float | None) -> None:
    [row], [reason] = decoded(decoder("scalar"), [text.encode()])
    assert (row["value"], row["text"], reason) == (value, text if value is None else None, None)
    _, [reason] = decoded(decoder("number"), [text.encode()])
    assert (reason is None) == (value is not None)


@pytest.mark.parametrize(
    ("payload", "fields", "text"),
    [
        ("xml", None, "unknown payload format 'xml'"),
        ("text", {"a": "double"}, "columns of its own"),
        ("json", {"a": "float"}, "field 'a' has type 'float'"),
        ("json", {"a b": "double"}, "letters, digits"),
        ("json", {"a": "double", "A": "double"}, "would be one column"),
    ],
)
def test_a_format_that_cannot_be_is_refused_in_one_line(
    payload: str, fields: dict[str, str] | None, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        decoder(payload, fields)


@pytest.mark.parametrize("payload", FORMATS)
def test_a_decoder_travels_to_another_process(payload: str) -> None:
    there = pickle.loads(pickle.dumps(made(payload)))
    assert there.decode(rows([b"{}"])).errors.equals(made(payload).decode(rows([b"{}"])).errors)
