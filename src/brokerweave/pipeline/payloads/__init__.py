"""Payloads as typed columns: what each format's decoder gives, and how one is chosen.

Owns the interface of decoders and the list of formats. Invariants: a decoder never raises because of what a
payload holds: the row gets a reason instead; the number and order of rows stay; no Spark is needed. Must
not know: silver's other columns, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from brokerweave.errors import ConfigError

__all__ = ["FORMATS", "Decoded", "Decoder", "decoder"]

FORMATS = ("json", "cbor", "number", "text", "scalar", "sparkplug", "raw")
WITH_FIELDS = frozenset({"json", "cbor"})
"""Formats whose columns are the members of an object: given, or inferred from a sample."""
REST = "_rest"


@dataclass(frozen=True, slots=True)
class Decoded:
    """The columns of a decoder's schema, and for each row why it could not be decoded (null: it could)."""

    columns: list[pa.Array]
    errors: pa.Array


class Decoder(Protocol):
    """Turns the payloads of some rows into columns. It goes to Spark's workers, so it can be pickled."""

    @property
    def schema(self) -> pa.Schema: ...

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        """`rows` has `payload` and `topic`; Sparkplug also uses `received` and `sequence`."""
        ...


def decoder(
    payload: str, fields: Mapping[str, str] | None = None, aliases: Mapping[str, Any] | None = None
) -> Decoder:
    """The decoder of a format. `fields` are column types by member name. Raises `ConfigError`."""
    from brokerweave.pipeline.payloads.cbor import CborDecoder
    from brokerweave.pipeline.payloads.json_text import JsonDecoder
    from brokerweave.pipeline.payloads.scalar import RawDecoder, ScalarDecoder
    from brokerweave.pipeline.payloads.sparkplug import SparkplugDecoder

    if payload == "json":
        return JsonDecoder(fields or {})
    if payload == "cbor":
        return CborDecoder(fields or {})
    if fields:
        raise ConfigError(f"fields are for json and cbor; payload {payload} has columns of its own")
    if payload in ("number", "text", "scalar"):
        return ScalarDecoder(payload)
    if payload == "sparkplug":
        return SparkplugDecoder(aliases or {})
    if payload == "raw":
        return RawDecoder()
    raise ConfigError(f"unknown payload format '{payload}': use one of {', '.join(FORMATS)}")
