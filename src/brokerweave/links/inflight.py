"""What an injector has sent and not completed yet.

Owns one message's way through the QoS handshakes, packet identifiers, and which runs are complete.
Invariants: an identifier belongs to one message at a time; the order of the table is the order in which
messages were first sent under their identifiers; runs are reported complete in the order of the outbox. Must
not know: bytes on the connection, why something is sent again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property, get_int
from brokerweave.mqtt.publish import publish_head

MAX_PACKET_ID = 0xFFFF


class Stage(enum.Enum):
    WAITING = "waiting"
    """To be written on this connection, be it the first time or again."""
    SENT = "sent"
    """Written on this connection, no answer yet."""
    RELEASED = "released"
    """QoS 2: the broker has it (PUBREC); PUBREL is to be confirmed."""


@dataclass(slots=True, eq=False)
class Message:
    """One publication. `qos` is what it is sent at, `published_qos` what it came at."""

    frame: bytes
    version: int
    born: float
    sequence: int
    """Of its run, in the outbox."""
    record: int
    """Its run's number on disk; 0 if it is not there."""
    offset: int
    """Its place in the run."""
    topic: bytes
    published_qos: int
    cap: int
    retain: bool
    has_properties: bool
    expiry: int | None
    qos: int = 0
    packet_id: int = 0
    dup: bool = False
    stage: Stage = Stage.WAITING
    writes: int = 0
    tried: int = 0
    """How often the broker refused it, or died with nothing but this on its hands."""
    suspect: bool = False
    """It was in flight when a connection died: to be sent alone."""
    mark: int = 0
    """How many QoS 0 writes there were up to this one: an answer to it proves that they arrived."""
    moved: float = 0.0
    """When its handshake last went on."""
    repair: bool = False
    """As its run's."""
    stamp: bytes = b""
    """What names it in its stamp; empty if it gets none."""


def read_message(
    frame: bytes, version: int, cap: int, born: float, sequence: int, record: int = 0, offset: int = 0
) -> Message:
    """Raises RemoteProtocolError for what is no PUBLISH, or has properties that cannot be read."""
    head = publish_head(frame, version)
    expiry: int | None = None
    if Property.MESSAGE_EXPIRY_INTERVAL in head.properties:  # a byte somewhere in them: worth a closer look
        packet = codec.decode(frame, version)
        if isinstance(packet, Publish):
            found = get_int(packet.properties, Property.MESSAGE_EXPIRY_INTERVAL, -1)
            expiry = None if found < 0 else found
    place = (sequence, record, offset)
    return Message(
        frame, version, born, *place, head.topic, head.qos, cap, head.retain, bool(head.properties), expiry
    )


class Inflight:
    """The messages that hold a packet identifier."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}
        self._burned: set[int] = set()
        # Identifiers of messages that are over, while their runs are not: what is kept of them is kept there.
        self._held: dict[int, int] = {}
        self._last_id = 0
        self.unanswered = 0
        """Messages written on this connection whose handshake is not over: what the window bounds."""

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(list(self._messages.values()))

    def get(self, packet_id: int) -> Message | None:
        return self._messages.get(packet_id)

    def admit(self, message: Message) -> None:
        """Give it an identifier that nobody uses [MQTT-2.3.1-2]. The window is smaller than the id space."""
        packet_id = self._last_id
        while True:
            packet_id = packet_id % MAX_PACKET_ID + 1
            if not (packet_id in self._messages or packet_id in self._burned or packet_id in self._held):
                break
        self._last_id = message.packet_id = packet_id
        self._messages[packet_id] = message

    def begin_after(self, packet_id: int) -> None:
        """Give out identifiers from here on."""
        self._last_id = packet_id % MAX_PACKET_ID

    @property
    def full(self) -> bool:
        """Whether no identifier is left."""
        return len(self._messages) + len(self._burned) + len(self._held) >= MAX_PACKET_ID

    def restore(self, message: Message, packet_id: int, released: bool) -> None:
        """A message from before a crash. Call it in the order in which they were first sent."""
        message.packet_id = packet_id
        message.stage = Stage.RELEASED if released else Stage.WAITING
        message.writes = 1
        self._messages[packet_id] = message
        self._burned.discard(packet_id)

    def burn(self, packet_id: int) -> None:
        self._burned.add(packet_id)

    def hold(self, packet_id: int, sequence: int) -> None:
        """Nobody gets this identifier before the run is complete."""
        self._held[packet_id] = sequence

    def unhold(self, sequence: int) -> None:
        """All runs up to this one are complete."""
        if self._held:
            self._held = {i: s for i, s in self._held.items() if s > sequence}

    def sent(self, message: Message, now: float) -> None:
        message.stage = Stage.SENT
        message.moved = now
        self.unanswered += 1

    def finish(self, message: Message, burn: bool = False) -> None:
        """Its identifier is free again, or, with `burn`, only after the broker forgot the session.

        Burnt are those of QoS 2 messages given up without an answer: the broker may know the identifier and
        would take the next message under it for a repetition.
        """
        del self._messages[message.packet_id]
        if message.stage is not Stage.WAITING:
            self.unanswered -= 1
        if burn:
            self._burned.add(message.packet_id)
        message.packet_id = 0
        message.dup = False
        message.stage = Stage.WAITING

    def interrupted(self) -> list[Message]:
        """The connection is gone: all that was sent waits again, in its order; given are those messages."""
        self.unanswered = 0
        again = []
        for message in self._messages.values():
            if message.stage is Stage.SENT:
                message.stage = Stage.WAITING
                again.append(message)
        return again

    def resumed(self, messages: Iterable[Message], now: float) -> list[Message]:
        """The broker knows the session: given are those to release, the rest is repeated [MQTT-4.4.0-1]."""
        released = []
        for message in messages:
            if message.stage is Stage.RELEASED:
                released.append(message)
                message.moved = now
                self.unanswered += 1
            else:
                message.dup = True
        return released

    def forgotten(self) -> list[Message]:
        """The broker forgot the session, so identifiers mean nothing now; given are those it had taken."""
        taken = []
        for message in self._messages.values():
            if message.stage is Stage.RELEASED:
                taken.append(message)
            message.packet_id = 0
            message.dup = False
            message.stage = Stage.WAITING
        self._messages.clear()
        self._burned.clear()
        return taken


class OpenRuns:
    """How many messages of each run taken from the outbox are still to come to their end."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}

    def opened(self, sequence: int, count: int) -> None:
        self._left[sequence] = count

    def ended(self, sequence: int, count: int = 1) -> int | None:
        """`count` messages of a run ended. The last run up to which all are complete now, if that changed."""
        self._left[sequence] -= count
        complete: int | None = None
        while self._left:
            first = next(iter(self._left))
            if self._left[first] > 0:
                break
            del self._left[first]
            complete = first
        return complete
