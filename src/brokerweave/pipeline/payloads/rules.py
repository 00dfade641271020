"""Which payload is decoded how, and the table that comes of it.

Owns silver's columns: what bronze knows of a message, its event time, and the columns of all rules beside
each other. Invariants: a row is decoded by the first rule whose topics match, a row that none matches is
left out; two rules give one column only if they agree about its type. Must not know: Spark, files, batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from brokerweave.edgelog.arrow import SCHEMA as BRONZE
from brokerweave.errors import ConfigError
from brokerweave.mqtt.topics import matches, validate_filter
from brokerweave.pipeline.payloads import FORMATS, REST, WITH_FIELDS, Decoder, decoder
from brokerweave.pipeline.payloads.cbor import infer_cbor
from brokerweave.pipeline.payloads.fields import check, column_of
from brokerweave.pipeline.payloads.json_text import infer_json
from brokerweave.pipeline.payloads.times import TIME, event_times

KEPT = [*(name for name in BRONZE.names if name not in ("payload", "schema_version")), "payload_hash"]
"""What silver keeps of bronze. `payload_hash` is there for QoS 1 and 2 only, where a client may resend."""
META = pa.schema(
    [BRONZE.field(name) for name in KEPT if name != "payload_hash"]
    + [pa.field("payload_hash", pa.int64()), pa.field("event_time", TIME)]
)
ERROR = "_error"


@dataclass(frozen=True, slots=True)
class PayloadRule:
    """How the payloads of some topics are read. `fields` None: from the first sample, then for ever."""

    name: str = "all"
    topics: tuple[str, ...] = ("#",)
    payload: str = "json"
    fields: Mapping[str, str] | None = None
    event_time: str | None = None
    """The member (or Sparkplug column) that says when it was measured; None: when it was received."""
    inferred: bool = False
    """`fields` come from a sample."""

    def __post_init__(self) -> None:
        if self.payload not in FORMATS:
            raise ConfigError(f"unknown payload format '{self.payload}': use one of {', '.join(FORMATS)}")
        if not self.topics:
            raise ConfigError(f"rule {self.name} has no topics")
        for each in self.topics:
            try:
                validate_filter(each)
            except ValueError as error:
                raise ConfigError(f"rule {self.name}: {error}") from error
        if self.fields is not None:
            if self.payload not in WITH_FIELDS:
                raise ConfigError(
                    f"rule {self.name}: payload {self.payload} has columns of its own, no fields"
                )
            check(self.fields)
            if not self.inferred and self.event_time is not None and self.event_time not in self.fields:
                raise ConfigError(f"rule {self.name}: event_time '{self.event_time}' is not among its fields")

    @property
    def open(self) -> bool:
        """Its columns are not known yet."""
        return self.fields is None and self.payload in WITH_FIELDS

    def infer(self, payloads: Iterable[bytes], others: pa.Schema) -> dict[str, str]:
        """Its fields, from a sample. A member that another rule has with another type stays in `_rest`."""
        found = (infer_json if self.payload == "json" else infer_cbor)(payloads)
        if found and self.event_time is not None:
            found.setdefault(self.event_time, "timestamp")
        return {
            member: kind for member, kind in found.items() if _agrees(decoder("json", {member: kind}), others)
        }

    def with_fields(self, fields: Mapping[str, str]) -> PayloadRule:
        """The rule with what was inferred."""
        return replace(self, fields=fields, inferred=True)


def _agrees(one: Decoder, others: pa.Schema) -> bool:
    known = {column.name.lower(): column for column in others}
    return all(known.get(column.name.lower(), column) == column for column in one.schema)


@dataclass
class RuleSet:
    """Rules in order, all of whose columns are known. Goes to Spark's workers."""

    rules: Sequence[PayloadRule]
    aliases: Mapping[str, Any] = field(default_factory=dict)
    """What Sparkplug's births explained (`sparkplug.births`)."""

    def __post_init__(self) -> None:
        self._decoders = [decoder(rule.payload, rule.fields, self.aliases) for rule in self.rules]
        self._choices: dict[str, int] = {}
        columns: dict[str, pa.Field] = {}
        for rule, each in zip(self.rules, self._decoders, strict=True):
            for column in each.schema:
                other = columns.setdefault(column.name.lower(), column)
                if other != column:
                    raise ConfigError(
                        f"rule {rule.name} has column {column.name} as {column.type}, another as {other.type}"
                    )
        rest = columns.pop(REST, pa.field(REST, pa.string()))
        self.schema = pa.schema([*META, *columns.values(), rest])
        """Silver's columns."""

    def rule_of(self, topic: str) -> int | None:
        """The number of the rule for a topic."""
        known = self._choices.get(topic)
        if known is None:
            if len(self._choices) > 100_000:  # topics may carry ids; forget rather than grow
                self._choices.clear()
            fitting = (
                at for at, rule in enumerate(self.rules) if any(matches(each, topic) for each in rule.topics)
            )
            known = self._choices[topic] = next(fitting, -1)
        return None if known < 0 else known

    def choices(self, topics: pa.Array) -> pa.Array:
        """For each topic the number of its rule, or null."""
        encoded = topics.dictionary_encode()
        chosen = [self.rule_of(topic) for topic in encoded.dictionary.to_pylist()]
        return pa.array(chosen, pa.int32()).take(encoded.indices)

    def decode(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Silver's columns, `_error`, and the payload of rows in error. Rows may change their order."""
        chosen = self.choices(rows.column("topic"))
        made = []
        for number in range(len(self.rules)):
            own = rows.filter(pc.equal(chosen, number)) if len(self.rules) > 1 or chosen.null_count else rows
            if own.num_rows:
                made.append(self._decode(number, own))
        return made

    def _decode(self, number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        rule, decoded = self.rules[number], self._decoders[number].decode(rows)
        columns = dict(zip(self._decoders[number].schema.names, decoded.columns, strict=True))
        received = rows.column("received").cast(TIME)
        at = columns.get(_time_column(rule))
        known = {name: rows.column(name) for name in KEPT}
        known |= {"received": received, "event_time": received if at is None else event_times(at, received)}
        known |= columns
        made = [
            known[column.name].cast(column.type)
            if column.name in known
            else pa.nulls(rows.num_rows, column.type)
            for column in self.schema
        ]
        failed = decoded.errors.is_valid()
        raw = pc.if_else(failed, rows.column("payload"), pa.scalar(None, pa.binary()))
        return pa.RecordBatch.from_arrays([*made, decoded.errors, raw], schema=self.output)

    @property
    def output(self) -> pa.Schema:
        """What `decode` gives; the last column's name is not `payload`, which raw payloads may have taken."""
        return self.schema.append(pa.field(ERROR, pa.string())).append(pa.field("_payload", pa.binary()))


def _time_column(rule: PayloadRule) -> str | None:
    if rule.event_time is None:
        return "sp_time" if rule.payload == "sparkplug" else None
    return column_of(rule.event_time) if rule.payload in WITH_FIELDS else rule.event_time
