"""AdoptedWills of clients whose home died: who adopts a client publishes its will.

Owns how a will is kept in a record, and the names by which other sites know it again. Invariant: a will is
published once by whoever adopts its client, and not if the client came back before it was due. Must not
know: how a publication travels, other sites.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

from brokerweave.care.homes.home import Home, State
from brokerweave.care.homes.publishers import Sent
from brokerweave.care.ids import MessageId
from brokerweave.care.wills import PendingWill
from brokerweave.care.wire import decode_will, encode_will
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Will
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.care.homes.care import HomeCare
    from brokerweave.care.host import CareHost

WILL_OF = "\0"
"""Begins the sender of a will, as no client id does [MQTT-1.5.4-2]."""
_LONGEST = 16_000
"""Characters of a client id in the sender of its will: it has to fit into 64 KiB."""
_NEVER = 0xFFFF_FFFF


class AdoptedWills:
    def __init__(self, host: CareHost, care: HomeCare) -> None:
        self._host = host
        self._care = care

    def came(self, home: Home, pair: Pair) -> None:
        """A client is connected here: its holders hear of its will."""
        before, home.record.will = home.record.will, b""
        pair.came = home.record.generation
        if pair.will is not None:
            expiry = _NEVER if math.isinf(pair.expiry) else int(pair.expiry)
            will = PendingWill(home.client, self._host.node_id, pair.came, pair.version, pair.will, expiry)
            home.record.will = encode_will(will)
        if before != home.record.will:
            self._care.holders.filters(home.record)

    def ended(self, home: Home) -> None:
        """Its own node sees to its will now."""
        if home.record.will:
            home.record.will = b""
            self._care.holders.filters(home.record)

    def mark(self, pair: Pair, will: Will) -> tuple[str, int]:
        """The sender of a will that the broker here publishes: what another site may send of it is known,
        but not if the broker may have died before."""
        sender = _sender(pair.client.client_id, pair.came)
        if not pair.broker_left:
            self._know(sender, will)
        return sender

    def _know(self, sender: tuple[str, int], will: Will) -> None:
        nobody = MessageId(self._host.node_id, 0, 0, 0)
        self._care.publishers.note(*sender, content_hash(will.topic, will.payload), Sent(nobody, True, ""))

    def adopted(self, home: Home) -> None:
        """The home of a client is gone; perhaps the client comes back in time."""
        try:
            pending = decode_will(home.record.will) if home.record.will else None
        except RemoteProtocolError:
            pending = None
        if isinstance(pending, PendingWill):
            self._host.call_later(pending.delay, lambda: self._publish(home, pending))

    def _publish(self, home: Home, pending: PendingWill) -> None:
        alone = home.state is State.HOME and home.pair is None and not home.session
        if self._care.homes.get(home.client) is not home or not alone or not home.record.will:
            return
        sender, will = _sender(pending.client, pending.since), pending.will
        if self._care.publishers.find(*sender, content_hash(will.topic, will.payload)) is None:
            self._know(sender, will)
            self._host.count("wills_of_dead_nodes")
            self._host.publisher.publish_will(will, pending.version, sender)
        self.ended(home)


def _sender(client: str, generation: int) -> tuple[str, int]:
    return WILL_OF + client[:_LONGEST], zlib.crc32(b"%d" % generation) & 0xFFFF or 1
