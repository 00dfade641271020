"""The clients' MQTT sessions as the node knows them: started, taken over, left, expired.

Owns the life of the records, and which changes are written to disk. Invariants: of all accepted pairs of a
client id, the one whose CONNECT came last owns the record, and only its end counts; a session that ends with
its connection is never written. Must not know: what filters mean (`interest`), routes, links.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from brokerweave.plugin import Timer
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord, state_of

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore


class Sessions:
    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self.records = core.interest.records
        self._expiries: dict[str, Timer] = {}
        self._overtaken: dict[str, Pair] = {}
        """By client id: a pair whose CONNACK came after the CONNACK of a pair that connected later."""

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        """The broker accepted a client: the record that its session goes on with."""
        client_id = _name(pair)
        record = self.records.get(client_id)
        if record is not None and _later(record.owner, pair):
            # Its CONNACK was slow, on a connection of its own: the broker has most likely ended it since.
            self._overtaken[client_id] = pair
            return record
        self._overtaken.pop(client_id, None)
        expiry = self._expiries.pop(client_id, None)
        if expiry is not None:
            expiry.cancel()
        if record is not None and not session_present:
            if pair.connect is not None and self._core.care.is_owed(client_id, pair.connect.clean_start):
                record.lost = True
            self.forget(record, left=not record.lost)
            record.owner = None  # whose end says nothing of this session: its broker has ended it
            record = None
        unknown = False
        if record is None:
            record = self.records[client_id] = SessionRecord(client_id, pair.expiry)
            unknown = session_present
        record.owner = pair
        record.since = None
        record.joined = self._core.stamp(client_id)
        self._core.guarded.client_joined(client_id, record.joined)
        self._core.interest.tell(record)
        if unknown:
            self._unknown(record)
        if pair.expiry > 0 and pair.client.client_id:
            record.expiry = pair.expiry
            self._write(record)
        return record

    def of(self, pair: Pair) -> SessionRecord | None:
        """The pair's record; None if another pair has taken the session over."""
        record = self.records.get(_name(pair))
        if record is None or record.owner is pair or self._overtaken.get(record.client_id) is pair:
            return record
        return None

    def superseded(self, pair: Pair) -> bool:
        """Whether another pair has taken the session over."""
        return _name(pair) in self.records and self.of(pair) is None

    def heir(self, pair: Pair) -> object | None:
        """The pair that has taken the session over."""
        record = self.records.get(_name(pair))
        if record is not None and record.owner is pair:
            return self._overtaken.get(record.client_id)
        return record.owner if record is not None else None

    def calmed(self, record: SessionRecord) -> None:
        """A client subscribed: if its filters were unknown, they are no longer."""
        if record.unknown:
            self._core.interest.calm(record)
            if record.stored:
                self._write(record)

    def ended(self, pair: Pair) -> None:
        record = self.of(pair)
        if record is None:
            return
        overtaken = self._overtaken.pop(record.client_id, None)
        if overtaken is pair:
            return
        if overtaken is not None:  # the broker took the two in the other order: this session goes on
            record.owner = overtaken
            return
        record.owner = None
        record.expiry = pair.expiry
        record.since = self._core.now()
        if record.expiry <= 0 and record.lost:
            # Its client did not disconnect: messages are kept for it until it comes back, here or elsewhere.
            record.expiry = self._core.care.window
        if record.expiry <= 0:
            self.forget(record)
            return
        if record.stored:
            self._write(record)
        self._expire_later(record, 0.0)

    def forget(self, record: SessionRecord, left: bool = True) -> None:
        """A session is over. Not `left`: its client is here, with a new one."""
        self._core.interest.forget(record, left)

    def remember(self, record: SessionRecord, filters: dict[str, int], away: float) -> None:
        """A session from before a restart, `away` seconds of whose expiry are over."""
        self.records[record.client_id] = record
        self._core.guarded.client_joined(record.client_id, record.joined)
        self._core.interest.add(record, filters.items())
        if record.unknown and self._core.settings.unknown_session == "flood":
            self._core.interest.flood(record)
        record.stored = self._core.wal.keeps
        self._expire_later(record, away)

    def _unknown(self, record: SessionRecord) -> None:
        record.unknown = True
        self._core.counters.add("unknown_sessions")
        goes_on = f"client {record.client_id!r} resumed a session whose filters this node does not know; "
        if self._core.settings.unknown_session == "flood":
            self._core.interest.flood(record)
            self._core.host.warn(f"{goes_on}this site gets all messages until the client subscribes again")
        else:
            self._core.host.warn(f"{goes_on}other sites send it nothing until the client subscribes again")

    def _write(self, record: SessionRecord) -> None:
        self._core.wal.note("session", state_of(record, whole=not record.stored))
        record.stored = self._core.wal.keeps

    def _expire_later(self, record: SessionRecord, away: float) -> None:
        if math.isinf(record.expiry):
            return

        def expire() -> None:
            self._expiries.pop(record.client_id, None)
            if record.owner is None:
                self.forget(record)
                self._core.counters.add("sessions_expired")

        self._expiries[record.client_id] = self._core.call_later(max(record.expiry - away, 0.0), expire)


def _later(owner: object | None, pair: Pair) -> bool:
    return isinstance(owner, Pair) and owner.connect_number > pair.connect_number


def _name(pair: Pair) -> str:
    """A 3.1.1 broker does not say which id it gave to a client without one: then one that nobody can have."""
    return pair.client.client_id or f"\0{pair.client.id}"
