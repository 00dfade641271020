"""Wills of clients whose home died: who adopts a client publishes its will.

Owns how a will is kept in a record, and the names by which other sites know it again. Invariant: a will is
published once by whoever adopts its client, and not if the client came back before it was due. Must not
know: how a publication travels, other sites.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

from brokerweave.care.home import Home, State
from brokerweave.care.homes import Homes
from brokerweave.care.host import CareHost
from brokerweave.care.ids import MessageId
from brokerweave.care.publishers import Publishers, Sent
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Connect, Will
from brokerweave.mqtt.properties import Property, get_int
from brokerweave.session.pair import Pair

WILL_OF = "\0"
"""Begins the sender of a will, as no client id does [MQTT-1.5.4-2]."""
_LONGEST = 16_000
"""Characters of a client id in the sender of its will: it has to fit into 64 KiB."""
_NEVER = 0xFFFF_FFFF
_HEAD = struct.Struct(">QBI")


@dataclass(frozen=True, slots=True)
class PendingWill:
    """Of a client that came in this generation, in a session of this version of MQTT."""

    since: int
    version: int
    expiry: int
    """Seconds that its session lasts: no will waits longer [MQTT-3.1.3-9]."""
    will: Will

    @property
    def delay(self) -> int:
        if self.version < 5:
            return 0
        return min(get_int(self.will.properties, Property.WILL_DELAY_INTERVAL, 0), self.expiry)

    def encode(self) -> bytes:
        # CONNECT has a form for wills.
        carrier = Connect("", 5 if self.version == 5 else 4, will=self.will)
        return _HEAD.pack(self.since, self.version, self.expiry) + codec.encode(carrier, 5)

    @classmethod
    def decode(cls, data: bytes) -> PendingWill:
        """Raises RemoteProtocolError."""
        if len(data) < _HEAD.size:
            raise RemoteProtocolError("a will that ends too early")
        since, version, expiry = _HEAD.unpack_from(data)
        carrier = codec.decode(data[_HEAD.size :], 5)
        if version not in (3, 4, 5) or not isinstance(carrier, Connect) or carrier.will is None:
            raise RemoteProtocolError("a will that cannot be read")
        return cls(since, version, expiry, carrier.will)


class AdoptedWills:
    def __init__(self, host: CareHost, window: float, homes: Homes, publishers: Publishers) -> None:
        """`window`: seconds for which wills are known again."""
        self._host = host
        self._window = window
        self._homes = homes
        self._publishers = publishers
        self._left: dict[str, tuple[Pair, Will, int]] = {}
        """By client, wills that were due when the broker left it, and the last CONNECT that had come then."""

    def came(self, home: Home, pair: Pair) -> None:
        """A client is connected here: its holders hear of its will."""
        left, will, last = self._left.pop(home.client, (None, None, 0))
        if left is not None and will is not None and pair.connect_number <= last:
            # The broker did not die: it took the connection over, and published the will.
            self._know(_sender(home.client, left.came), will)
        before, home.record.will = home.record.will, b""
        pair.came = home.record.generation
        if pair.will is not None:
            expiry = _NEVER if math.isinf(pair.expiry) else int(pair.expiry)
            home.record.will = PendingWill(pair.came, pair.version, expiry, pair.will).encode()
        if before != home.record.will:
            self._homes.holders.filters(home.record)

    def ended(self, home: Home) -> None:
        """Its own node sees to its will now."""
        if home.record.will:
            home.record.will = b""
            self._homes.holders.filters(home.record)

    def mark(self, pair: Pair, will: Will) -> tuple[str, int]:
        """The sender of a will that the broker here publishes: what another site may send of it is known,
        but not if the broker may have died before. `came` may show that it did not."""
        client = pair.client.client_id
        sender = _sender(client, pair.came)
        if pair.broker_left:
            left = self._left[client] = pair, will, self._host.connects
            self._host.call_later(self._window, lambda: self._forget(client, left))
        else:
            self._know(sender, will)
        return sender

    def _forget(self, client: str, left: tuple[Pair, Will, int]) -> None:
        if self._left.get(client) is left:
            del self._left[client]

    def _know(self, sender: tuple[str, int], will: Will) -> None:
        nobody = MessageId(self._host.node_id, 0, 0, 0)
        self._publishers.note(*sender, content_hash(will.topic, will.payload), Sent(nobody, True, ""))

    def adopted(self, home: Home) -> None:
        """The home of a client is gone; perhaps the client comes back in time."""
        if not home.record.will:
            return
        try:
            pending = PendingWill.decode(home.record.will)
        except RemoteProtocolError:
            return
        self._host.call_later(pending.delay, lambda: self._publish(home, pending))

    def _publish(self, home: Home, pending: PendingWill) -> None:
        alone = home.state is State.HOME and home.pair is None and not home.session
        if self._homes.get(home.client) is not home or not alone or not home.record.will:
            return
        sender, will = _sender(home.client, pending.since), pending.will
        if self._publishers.find(*sender, content_hash(will.topic, will.payload)) is None:
            self._know(sender, will)
            self._host.count("wills_of_dead_nodes")
            self._host.publisher.publish_will(will, pending.version, sender)
        self.ended(home)


def _sender(client: str, generation: int) -> tuple[str, int]:
    return WILL_OF + client[:_LONGEST], zlib.crc32(b"%d" % generation) & 0xFFFF or 1
