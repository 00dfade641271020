"""What a pair needs of the node it belongs to, and what it gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Publication:
    """What a client published, in frames of one route group, on its way to the links."""

    group: object
    count: int
    blob: bytes
    max_qos: int
    version: int
    taken: tuple[str, int] | None = None
    """Client and packet id of one at QoS 2, where its session outlives the connection."""
    sender: tuple[str, int] | None = None
    """Where clients are watched, those of one whose client left without an answer."""


class PairPublisher(Protocol):
    """What takes the publications of accepted clients to the links."""

    def has_room(self, topic: str, retain: bool) -> bool:
        """Whether one at QoS 1 or 2 would be kept, should it have to wait for its route."""

    def forward(self, publication: Publication) -> bool:
        """False: some at QoS 1 or 2 would not be kept, and the client must not believe that they are."""

    def forward_confirmed(self, group: object, publish: Publish, pair: Pair, ack: HeldAck) -> bool:
        """The same for one whose acknowledgement waits. False: until `pair.release(ack)`."""


class PairHost(RecorderHost, RedeliveryHost, UnconfirmedHost, Protocol):
    """What a pair asks of its node."""

    def connect_arrived(self, pair: Pair) -> None:
        """CONNECT was read: open the broker session. `pair.use_routes` where the client has its own."""

    def connect_unread(self, pair: Pair, connect: bytes) -> None:
        """What should be CONNECT cannot be read: open the broker session all the same."""

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        """The broker accepted the client: the record its session goes on with."""

    def granted(self, pair: Pair, filters: list[tuple[str, int]], hold_point: HoldPoint) -> bool:
        """The broker granted filters. False: the stream to the client is held until
        `pair.end_hold(hold_point)`."""

    def may_subscribe(self, pair: Pair, filters: Mapping[str, int]) -> bool:
        """A SUBSCRIBE is about to go to the broker. False: it waits until `pair.subscribe_now()`."""

    def may_publish(self, pair: Pair) -> bool:
        """A publication of QoS 1 or 2 is about to go to the broker. False: it is held, with what the client
        publishes behind it, until `pair.publish_now()` or `pair.close_refused()`."""

    def holds(self, pair: Pair, size: int) -> None:
        """So much more is held. Raises `Refused` if that is too much for the node."""

    def withdrawn(self, pair: Pair, filters: list[str]) -> None: ...

    @property
    def publisher(self) -> PairPublisher: ...

    def released(self, pair: Pair, packet_id: int) -> None:
        """The same client may use this QoS 2 packet id for something new."""

    def superseded(self, pair: Pair) -> bool:
        """Whether the client has a later connection here: the broker is about to end this one."""

    def resent(self, pair: Pair, publish: Publish) -> bool:
        """A watched client sent a publication again. True if it was acted on before: the broker does not
        get it, and the node answers, when `forward_confirmed` (its `ack.resent` is set) lets it."""

    def publication_name(self, pair: Pair, publish: Publish) -> bytes:
        """What names a publication of QoS 1 or 2 that a watched MQTT 5 client sends: 1 to 12 bytes, unique
        for the deployment. The broker gets it in a stamp (`mqtt.stamp`), and a delivery with that stamp is
        known by this name. b"": it gets none.

        Asked when it is about to go to the broker, after `publishing`. The topic is as the client wrote it,
        maybe an alias. With `publish.dup` it went there before. A delivery may come without the stamp all the
        same, and then it is known by its content: to a 3.1.1 client, or if the broker takes no larger packet.
        """

    def subscribing(self, pair: Pair) -> None:
        """The client's SUBSCRIBE is about to go to the broker."""

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        """End both halves of a pair; the broker is told `last_words` before."""

    def clear_session(self, pair: Pair) -> None:
        """A pair ended, and its 3.1.1 broker keeps the session: let it end, too."""

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
