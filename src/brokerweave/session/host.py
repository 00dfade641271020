"""What a pair needs of the node it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from brokerweave.mqtt.packets import Publish
from brokerweave.plugin import Listener
from brokerweave.session.hold_points import HeldAck, HoldPoint
from brokerweave.session.record import SessionRecord
from brokerweave.session.recorder import RecorderHost
from brokerweave.session.redelivery import RedeliveryHost
from brokerweave.session.unconfirmed import UnconfirmedHost

if TYPE_CHECKING:
    from brokerweave.session.pair import Pair


class PairHost(RecorderHost, RedeliveryHost, UnconfirmedHost, Protocol):
    """What a pair asks of its node."""

    def connect_arrived(self, pair: Pair) -> None:
        """CONNECT was read: open the broker session. `pair.use_routes` where the client has its own."""

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        """The broker accepted the client: the record its session goes on with."""

    def granted(self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint) -> bool:
        """The broker granted filters. False: the stream to the client stands until
        `pair.end_hold(hold_point)`."""

    def may_subscribe(self, pair: Pair, filters: Mapping[str, int]) -> bool:
        """A SUBSCRIBE is about to go to the broker. False: it waits until `pair.subscribe_now()`."""

    def withdrawn(self, pair: Pair, filters: list[str]) -> None: ...

    def forward(
        self,
        group: object,
        count: int,
        blob: bytes,
        max_qos: int,
        version: int,
        taken: tuple[str, int] | None = None,
        sender: tuple[str, int] | None = None,
    ) -> None:
        """Publications of an accepted client, for the links.

        `taken` is one QoS 2 publication's client and packet id, where its session outlives the connection;
        `sender`, where clients are watched, those of one whose client left without an answer.
        """

    def released(self, pair: Pair, packet_id: int) -> None:
        """The same client may use this QoS 2 packet id for something new."""

    def forward_confirmed(
        self, group: object, publish: Publish, version: int, pair: Pair, ack: HeldAck
    ) -> bool:
        """The same for one whose acknowledgement waits. False: until `pair.release(ack)`."""

    def superseded(self, pair: Pair) -> bool:
        """Whether the client has a later connection here: the broker is about to end this one."""

    def resent(self, pair: Pair, publish: Publish) -> bool:
        """A watched client sent a publication again. True if it was acted on before: the broker does not
        get it, and the node answers, when `forward_confirmed` (its `ack.resent` is set) lets it."""

    def subscribing(self, pair: Pair) -> None:
        """The client's SUBSCRIBE is about to go to the broker."""

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        """End both halves of a pair; the broker is told `last_words` before."""

    def ended(self, pair: Pair, unexpected: bool) -> None:
        """Both sessions are over; `unexpected` without a DISCONNECT that discards the will."""

    def closed(self, pair: Pair) -> None:
        """The last that is heard of a pair whose CONNECT was read, accepted or not."""

    def listener_failed(self, listener: Listener, error: Exception) -> None: ...


class SessionLimits(Protocol):
    @property
    def max_packet(self) -> int: ...

    @property
    def client_queue(self) -> int: ...
