"""JSON payloads.

Owns what counts as JSON: one object in UTF-8, without NaN; of a name that comes twice the last one counts.
Must not know: types of columns (fields).

The standard library's parser, row by row, because it can say why a row is bad and what the schema does not
name. Spark's `from_json` gives neither; `pyarrow.json` refuses a whole batch for one bad row, and one object
can end in the next row. Which is fastest on the whole path has not been settled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import pyarrow as pa

from brokerweave.pipeline.payloads import Decoded
from brokerweave.pipeline.payloads.fields import Fields, infer


class JsonDecoder:
    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = Fields(fields)

    @property
    def schema(self) -> pa.Schema:
        return self._fields.schema

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        objects: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        why: str | None
        for payload in rows.column("payload").to_pylist():
            try:
                value = json.loads(payload.decode(), parse_constant=_refuse)
            except (ValueError, RecursionError, AttributeError) as error:
                value, why = None, _reason(error)
            else:
                why = None if type(value) is dict else "not a JSON object"
            objects.append(value if why is None else None)
            errors.append(why)
        return self._fields.build(objects, errors)


def infer_json(payloads: Iterable[bytes]) -> dict[str, str]:
    """The schema of a sample; what is no object counts for nothing."""
    objects = []
    for payload in payloads:
        try:
            value = json.loads(payload.decode(), parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            objects.append(value)
    return infer(objects)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return f"not JSON: {error}"
