"""What a client sent from its first publication on that may not go to the broker yet.

Owns the bytes. Invariants: they are kept in the order in which they came, and nobody has acted on them. Given
out ahead, each once and in their order, is what publishes nothing: that the client is alive, that it leaves,
what it wants, and its answers to what the broker delivers. It would lose messages of others if these waited:
its session may have a claim that ends with the connection. Must not know: why they are held.
"""

from __future__ import annotations

from brokerweave.errors import Refused
from brokerweave.mqtt.packets import PacketType
from brokerweave.mqtt.scanner import Frame, Scanner

SERVER_BUSY = 0x89
_QUOTA_EXCEEDED = 0x97
_ABOUT_FILTERS = 1 << PacketType.SUBSCRIBE | 1 << PacketType.UNSUBSCRIBE
_AHEAD = sum(
    1 << t
    for t in (
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.PUBCOMP,
        PacketType.PINGREQ,
        PacketType.DISCONNECT,
    )
)


class NotReady(Refused):
    """A publication at QoS 1 or 2 that this node does not take yet: nobody may acknowledge it."""

    def __init__(self, full: bool = False) -> None:
        code = _QUOTA_EXCEEDED if full else SERVER_BUSY
        super().__init__("this node does not know yet what other sites want: publish later", code)


class HeldStream:
    __slots__ = ("_chunks", "_scanner", "_size", "left", "may_go")

    def __init__(self, max_packet: int, subscribes: bool) -> None:
        """`subscribes`: SUBSCRIBE and UNSUBSCRIBE do not wait."""
        self._scanner = Scanner(_AHEAD | (_ABOUT_FILTERS if subscribes else 0), max_packet)
        self._chunks: list[bytes] = []
        self._size = 0
        self.may_go = False
        """Nothing holds it but that the broker has not accepted the client yet."""
        self.left = False
        """The client said goodbye without waiting for an answer: what is held goes nowhere."""

    @property
    def size(self) -> int:
        return self._size + self._scanner.pending

    @property
    def scanned(self) -> tuple[int, int]:
        """Publications, and bytes of whole frames, so far."""
        return self._scanner.publishes, self._scanner.passed

    def feed(self, chunk: bytes) -> list[Frame]:
        """Keep what follows; returns what does not wait."""
        if self._scanner.error is not None:
            self._keep(chunk)
            return []
        whole, items = self._scanner.feed(chunk)
        frames = [item for item in items if isinstance(item, Frame)]
        done = 0
        for frame in frames:
            self._keep(whole[done : frame.at])
            done = frame.at + len(frame.data)
            self.left = self.left or frame.type == PacketType.DISCONNECT
        self._keep(whole[done:])
        if self._scanner.error is not None:
            self._keep(self._scanner.take_rest())
        return frames

    def take(self) -> bytes:
        """All of it, once."""
        chunks, self._chunks, self._size = self._chunks, [], 0
        return b"".join((*chunks, self._scanner.take_rest()))

    def _keep(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
            self._size += len(data)
