"""Sealed datagrams between gateways, sites and controllers, who do not know each other's boots beforehand.

Uses membership's seal: each datagram is made for one process, named by the random number that it drew when it
started (its boot). Who does not know it yet sends a hello to boot 0. Whatever is genuine but made for another
boot is answered with a welcome, which says this one's; so a peer that restarted is found within one round
trip. What waits for a welcome is bounded. Invariants: what is refused changes nothing but its cause's count
(an introduction counts as misdirected); a welcome counts only from where something was sent lately; a
datagram is answered with at most one of its own size. Must not know: what messages say.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from brokerweave.membership.seal import Seal
from brokerweave.membership.wire import HEADER

Address = tuple[str, int]

HELLO, WELCOME = 1, 2
MOST_PEERS = 4096
MOST_WAITING = 16
"""Messages to one peer whose boot is not known."""
WAITS = 2.0
"""Seconds for which they wait; a ping that waited longer would measure the wait."""
HELLO_SECONDS = 1.0
"""Between two hellos to a peer that does not answer."""
_LATELY = 5.0


class OpenedDatagram(NamedTuple):
    kind: int
    content: bytes
    boot: int
    """Of the sender."""
    address: Address


class _Peer:
    __slots__ = ("boot", "greeted", "said", "waiting")

    def __init__(self) -> None:
        self.boot: int | None = None
        self.said = self.greeted = float("-inf")
        self.waiting: list[tuple[float, int, bytes]] = []


class Channel:
    def __init__(self, key: bytes, boot: int, send: Callable[[bytes, Address], None]) -> None:
        """`key`: of this use alone, derived from the cluster's. `boot` is random, and not 0."""
        self._seal = Seal(key, boot)
        self._send = send
        self._peers: OrderedDict[Address, _Peer] = OrderedDict()

    @property
    def refused(self) -> dict[str, int]:
        """Datagrams that were not acted upon, by cause."""
        return self._seal.refused

    def refuse(self) -> None:
        """The content of a genuine datagram makes no sense."""
        self._seal.refuse("malformed")

    def say(self, address: Address, kind: int, content: bytes, now: float) -> bool:
        """Whether it went out at once; otherwise it waits for the peer's welcome, or was dropped."""
        peer = self._peer(address)
        peer.said = now
        if peer.boot is not None:
            self._send(self._seal.close(kind, peer.boot, content), address)
            return True
        peer.waiting = [each for each in peer.waiting if now - each[0] < WAITS]
        if len(peer.waiting) < MOST_WAITING:
            peer.waiting.append((now, kind, content))
        self._greet(peer, address, now)
        return False

    def answer(self, heard: OpenedDatagram, kind: int, content: bytes) -> None:
        self.tell(heard.address, heard.boot, kind, content)

    def tell(self, address: Address, boot: int, kind: int, content: bytes) -> None:
        """To a process that was heard before."""
        self._send(self._seal.close(kind, boot, content), address)

    def knows(self, address: Address, now: float) -> bool:
        """Whether what is said there goes out at once. If not, it is introduced."""
        peer = self._peer(address)
        if peer.boot is None:
            self._greet(peer, address, now)
        return peer.boot is not None

    def hear(self, data: bytes, source: Address, now: float) -> OpenedDatagram | None:
        misdirected = self._seal.refused["misdirected"]
        opened = self._seal.open(data)
        if opened is None:
            if self._seal.refused["misdirected"] != misdirected:  # genuine: the mac was right
                sender = int(HEADER.unpack_from(data)[2])
                self._send(self._seal.close(WELCOME, sender, b""), source)
            return None
        kind, boot, content = opened
        if kind != WELCOME:
            return OpenedDatagram(kind, content, boot, source)
        self._welcomed(source, boot, now)
        return None

    def _greet(self, peer: _Peer, address: Address, now: float) -> None:
        peer.said = now
        if now - peer.greeted >= HELLO_SECONDS:
            peer.greeted = now
            self._send(self._seal.close(HELLO, 0, b""), address)

    def _welcomed(self, source: Address, boot: int, now: float) -> None:
        peer = self._peers.get(source)
        if peer is None or now - peer.said > _LATELY:
            self.refuse()
            return
        peer.boot = boot
        waiting, peer.waiting = peer.waiting, []
        for at, kind, content in waiting:
            if now - at < WAITS:
                self._send(self._seal.close(kind, boot, content), source)

    def _peer(self, address: Address) -> _Peer:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer()
            if len(self._peers) > MOST_PEERS:
                self._peers.popitem(last=False)
        else:
            self._peers.move_to_end(address)
        return peer
