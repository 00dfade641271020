"""CBOR payloads (RFC 8949), through cbor2.

Owns what counts: one map and nothing after it. Must not know: types of columns (fields).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import cbor2
import pyarrow as pa

from brokerweave.pipeline.payloads import Decoded
from brokerweave.pipeline.payloads.fields import Fields, infer


class CborDecoder:
    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = Fields(fields)

    @property
    def schema(self) -> pa.Schema:
        return self._fields.schema

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        objects: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for payload in rows.column("payload").to_pylist():
            try:
                objects.append(_load(payload))
                errors.append(None)
            except Exception as error:  # tags run code of many kinds; whatever it is, the row is at fault
                objects.append(None)
                errors.append(_reason(error))
        return self._fields.build(objects, errors)


def infer_cbor(payloads: Iterable[bytes]) -> dict[str, str]:
    """The schema of a sample; what is no map counts for nothing."""
    objects = []
    for payload in payloads:
        try:
            objects.append(_load(payload))
        except Exception:
            continue
    return infer(objects)


def _load(payload: bytes) -> dict[str, Any]:
    file = io.BytesIO(payload)
    value = cbor2.load(file)
    if file.tell() != len(payload):
        raise ValueError("bytes after the end")
    if not isinstance(value, Mapping):
        raise ValueError("no map")
    return {key if isinstance(key, str) else str(key): each for key, each in value.items()}


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:200] or type(error).__name__
    return "not CBOR: " + text.encode("utf-8", "replace").decode()
