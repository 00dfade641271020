"""A gateway's connection to one site, for one client.

Owns what is known of it: its CONNACK, what is in flight, and what it said before it was the client's site.
Must not know: sockets, other connections of the client.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.gateway.ledger import Ledger
from brokerweave.gateway.replay import Replay
from brokerweave.mqtt.packets import ConnAck, PacketType
from brokerweave.mqtt.scanner import Frame, Scanner

EVERY_TYPE = 0xFFFE


def _types(*types: PacketType) -> int:
    return sum(1 << each for each in types)


WATCHED_OF_CLIENT = _types(
    PacketType.CONNECT,
    PacketType.SUBSCRIBE,
    PacketType.UNSUBSCRIBE,
    PacketType.PINGREQ,
    PacketType.DISCONNECT,
)
"""While nothing moves: what changes what a client wants, and what it waits for."""
WATCHED_OF_SITE = _types(PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP, PacketType.DISCONNECT)


class SiteLink:
    def __init__(
        self, site: str, drains: bool, max_packet: int, queue: int, write: Callable[[int, bytes], int]
    ) -> None:
        """`drains`: the sites agree on a planned move, so the old one drains. `write`: see `Ledger`."""
        self.site = site
        self.drains = drains
        self.scanner = Scanner(EVERY_TYPE, max_packet)
        self.ledger = Ledger(queue, write)
        self.replay = Replay()
        self.connack: ConnAck | None = None
        self.last_word = 0
        """The reason code of its DISCONNECT, if it sent one."""
        self.dismissed = b""
        """That DISCONNECT, if it is for the client: it is to go to no other site either."""
        self.early: list[Frame] = []
        """What it sent before it was the client's site."""
        self.early_bytes = 0

    def watch(self, *, every: bool) -> None:
        self.scanner.wanted = EVERY_TYPE if every else WATCHED_OF_SITE
