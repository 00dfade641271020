"""Payloads that are one number or one text, and payloads that are left alone.

Owns what counts as a number: decimal, as most sensors print it; no NaN, no infinity. Must not know: topics.
"""

from __future__ import annotations

import math
import re

import pyarrow as pa

from brokerweave.pipeline.payloads import Decoded

NUMBER = r"[ \t\r\n]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\r\n\x00]*"
_NUMBER = re.compile(NUMBER)


class ScalarDecoder:
    """`number`: `value`, anything else is an error; `text`: `text`; `scalar`: the one or the other."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        value, text = pa.field("value", pa.float64()), pa.field("text", pa.string())
        self.schema = pa.schema({"number": [value], "text": [text], "scalar": [value, text]}[kind])

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        texts: list[str | None] = []
        values: list[float | None] = []
        errors: list[str | None] = []
        for payload in rows.column("payload").to_pylist():
            text, why = _text(payload)
            number = None if text is None or self._kind == "text" else _number(text)
            if self._kind == "number" and why is None and number is None:
                why = "not a number"
            values.append(number)
            texts.append(text if number is None else None)
            errors.append(why)
        columns = {"value": pa.array(values, pa.float64()), "text": pa.array(texts, pa.string())}
        return Decoded([columns[name] for name in self.schema.names], pa.array(errors, pa.string()))


def _text(payload: bytes | None) -> tuple[str | None, str | None]:
    if payload is None:
        return None, "no payload"
    try:
        return payload.decode(), None
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start}"


def _number(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text.strip(" \t\r\n\x00"))
    return number if math.isfinite(number) else None


class RawDecoder:
    """The bytes as they are, in `payload`."""

    schema = pa.schema([("payload", pa.binary())])

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        return Decoded([rows.column("payload")], pa.nulls(rows.num_rows, pa.string()))
