"""A site's side of monitoring: it answers pings, sealed or as Table I has them.

Invariants: an answer goes to where the ping came from, at most one for each, and is never longer than what
came; nothing else is answered, but for introductions. Must not know: who asks, and why.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.errors import RemoteProtocolError
from brokerweave.placement import messages, table_one
from brokerweave.placement.channel import Channel
from brokerweave.placement.messages import Kind, SitePing, SitePong
from brokerweave.placement.table_one import PingRequest, PingResponse

Address = tuple[str, int]
Send = Callable[[bytes, Address], None]


class Responder:
    """With the cluster key."""

    def __init__(self, key: bytes, boot: int, send: Send, cpu: Callable[[], float]) -> None:
        self._channel = Channel(key, boot, send)
        self._cpu = cpu
        self.answered = 0

    @property
    def refused(self) -> dict[str, int]:
        return self._channel.refused

    def hear(self, data: bytes, source: Address, now: float) -> None:
        heard = self._channel.hear(data, source, now)
        if heard is None:
            return
        try:
            message = messages.decode(heard.kind, heard.content)
        except RemoteProtocolError:
            message = None
        if not isinstance(message, SitePing):
            self._channel.refuse()
            return
        self.answered += 1
        kind, content = messages.encode(SitePong(message.seq, self._cpu()))
        assert kind is Kind.PONG
        self._channel.answer(heard, kind, content)


class OpenResponder:
    """For anybody: loopback and tests."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.answered = 0
        self.refused = {"malformed": 0}

    def hear(self, data: bytes, source: Address, now: float) -> None:
        packet = table_one.decode(data)
        if isinstance(packet, PingRequest):
            self.answered += 1
            self._send(table_one.encode(PingResponse(packet.number)), source)
        else:
            self.refused["malformed"] += 1
