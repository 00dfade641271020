"""One client's publications on their way to the edge log: at once, or after the broker's answer.

Owns what waits for the broker's answer, where the broker can refuse (MQTT 5, QoS 1 and 2). Invariants: a
publication is recorded and safe before its acknowledgement reaches the client; what the broker refused is not
recorded; nothing here slows the client down. Must not know: which topics are tapped, how the recorder writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from brokerweave.mqtt.scanner import Routed

if TYPE_CHECKING:
    from brokerweave.session.pair import Pair

_REFUSED = 0x80
_HELD = 256
"""Bytes that an item takes in memory beside its contents, about."""


class RecorderHost(Protocol):
    def tapped(self, group: object) -> bool:
        """Whether publications of this group may have to be recorded."""

    def record_publications(self, pair: Pair, routed: Routed) -> None:
        """Publications of an accepted client, for the edge log, if a tap wants them."""

    def write_recorded(self) -> None:
        """An acknowledgement is about to go out: what was recorded has to be safe before."""

    def count(self, counter: str, amount: int = 1) -> None: ...


class Recorder:
    __slots__ = ("_bytes", "_host", "_limit", "_pair", "_unanswered", "awaits_answers", "unwritten")

    def __init__(self, host: RecorderHost, pair: Pair, limit: int) -> None:
        """Beyond `limit` bytes nothing more waits: it is recorded, come what may."""
        self.awaits_answers = False
        self._host = host
        self._pair = pair
        self._limit = limit
        self._unanswered: dict[int, Routed] = {}
        self._bytes = 0
        self.unwritten = False
        """Something was recorded that has to be safe before the broker's next bytes go to the client."""

    def take(self, routed: Routed, packet_id: int = 0) -> None:
        """Record publications; one with a packet id, which came by itself, when the broker has answered."""
        if not routed.max_qos:
            self._host.record_publications(self._pair, routed)
        elif packet_id and self.awaits_answers and self._bytes <= self._limit:
            self._await_answer(routed, packet_id)
        else:
            self._record(routed)

    def _await_answer(self, routed: Routed, packet_id: int) -> None:
        if self._host.tapped(routed.group):
            self._forget(packet_id)
            self._unanswered[packet_id] = routed
            self._bytes += _HELD + len(routed.blob)

    def take_again(self, routed: Routed, packet_id: int) -> None:
        """The client resent a QoS 2 publication. A crash may have come between taking and recording it, so it
        is one more row, unless the first still waits."""
        if packet_id not in self._unanswered:
            self.take(routed, packet_id)

    def answered(self, packet_id: int, reason_code: int) -> None:
        """The broker took a publication, or refused it."""
        routed = self._forget(packet_id)
        if routed is None:
            return
        if reason_code < _REFUSED:
            self._record(routed)
        else:
            self._host.count("tap_refused")

    def before_acknowledging(self) -> None:
        if self.unwritten:
            self.unwritten = False
            self._host.write_recorded()

    def ended(self, broker_left: bool) -> None:
        """The connection is over. What is not answered was handed to the broker, and nobody refused it;
        unless the broker ended the connection, unasked, as some do to refuse. The client may resend it."""
        if broker_left:
            self._host.count("tap_unanswered", len(self._unanswered))
        else:
            for routed in self._unanswered.values():
                self._record(routed)
        self._unanswered.clear()

    def _record(self, routed: Routed) -> None:
        self._host.record_publications(self._pair, routed)
        if not self.unwritten:
            self.unwritten = self._host.tapped(routed.group)

    def _forget(self, packet_id: int) -> Routed | None:
        routed = self._unanswered.pop(packet_id, None)
        if routed is not None:
            self._bytes -= _HELD + len(routed.blob)
        return routed
