"""What users see of clients behind a gateway: through which site each message came, and what got back there.

Owns, for each client of a gateway, its ways to sites as `users_view` counts connections. Invariant: only
bytes that went into and came out of pipes are looked at. Must not know: tunnels, what is promised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, Packet, PacketType, Publish
from brokerweave.mqtt.scanner import Frame, Scanner
from brokerweave.sim.client import ModelClient, identity
from brokerweave.sim.pipes import PipeEnd
from brokerweave.sim.users_view.history import Connection, History

_ALL_TYPES = 0xFFFE


class WayThroughGateway:
    """From one client to one site. Implements `WayOut`."""

    def __init__(self, client: PipeEnd, site: PipeEnd) -> None:
        """`client`: the client's own end. `site`: the gateway's end towards the site."""
        self._client = client
        self._site = site
        self._passed: deque[tuple[int, int]] = deque()
        """What the gateway had read of the client, and written to the site since."""

    @property
    def written(self) -> int:
        return self._client.written

    @property
    def broken(self) -> bool:
        return self._client.broken or self._site.broken

    def passed(self) -> None:
        """The gateway has gone through what it read."""
        self._passed.append((self._client.peer.read, self._site.written))

    def was_read(self, written: int) -> bool:
        for read, passed in self._passed:
            if read >= written:
                return self._site.was_read(passed)
        return False


class SeenClient:
    """One connection of a client to a gateway."""

    def __init__(self, history: History, client: ModelClient, end: PipeEnd) -> None:
        """`end`: the gateway's end towards the client."""
        self.client = client
        self.connection: Connection | None = None
        """At the site where it is now."""
        self._history = history
        self._end = end
        self._way: WayThroughGateway | None = None
        self._down: deque[tuple[int, Connection]] = deque()
        """Bytes written to the client by then, and through which site they came."""

    @property
    def here(self) -> bool:
        """Whether the client has not come back on another connection."""
        return self.client.end is self._end.peer

    @property
    def way(self) -> WayThroughGateway | None:
        return self._way

    def is_at(self, site: str, end: PipeEnd, resumed: bool) -> None:
        history, client = self._history, self.client
        if not self.here:
            return
        self._way = WayThroughGateway(self._end.peer, end)
        client.site = site
        self.connection = Connection(site, self._way, history.now(), resumed)
        history.persistent[client.name] = client.persistent
        history.connections[client.name].append(self.connection)

    def wrote(self) -> None:
        """Something went to the client."""
        if self.connection is not None:
            self._down.append((self._end.written, self.connection))

    def passed(self) -> None:
        """What was read of the client went to its site."""
        if self._way is not None:
            self._way.passed()

    def through(self) -> Connection | None:
        """Of what the client has read last."""
        read = self._end.peer.read
        while len(self._down) > 1 and self._down[0][0] < read:
            self._down.popleft()
        return self._down[0][1] if self._down else self.connection

    def left(self, since: float | None) -> None:
        """It is not at its site any more. `since`: when the planned move began that led away; None: its
        connection was lost."""
        connection, history = self.connection, self._history
        self.connection = self._way = None
        if connection is None or connection.until < inf or not self.here:
            return
        if since is not None:
            history.moved(self.client, since, self.client.will_payload())
        else:
            history.will_is_free(self.client.will_payload())
            history.disconnected(self.client)

    def granted(self, filters: dict[str, int]) -> None:
        """A site granted what the client had subscribed to before it came there."""
        if not self.here:
            return
        for topic_filter, qos in filters.items():
            if self.client.wanted.get(topic_filter) == qos:
                self._history.granted(self.client, topic_filter, qos)


class SeenSending:
    """What goes to a site on one connection."""

    def __init__(self, history: History, site: str) -> None:
        self._history = history
        self._site = site
        self._scanner = Scanner(_ALL_TYPES, 1 << 20)
        self._version = 4

    def sent(self, data: bytes) -> None:
        _, items = self._scanner.feed(data)
        for item in items:
            if isinstance(item, Frame) and item.type in (PacketType.PUBLISH, PacketType.CONNECT):
                self._packet(codec.decode(item.data, self._version))

    def _packet(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            self._version = packet.version
            if packet.will is not None:
                self._history.sent_to(self._site, packet.will.payload)
        elif isinstance(packet, Publish):
            self._history.sent_to(self._site, identity(packet))
            publication = self._history.publications.get(identity(packet))
            if packet.qos == 2 and publication is not None and publication.acknowledged < inf:
                self._history.unknown.append(f"{identity(packet)!r} went to {self._site} after its PUBREC")


class GatewayObserver:
    """Implements `Observer` for clients of gateways: what a gateway has to say of them is left to it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.seen: dict[str, SeenClient] = {}

    def made(self, client: ModelClient, payload: bytes, topic: str, qos: int, retain: bool) -> None:
        self.history.made(client, payload, topic, qos, retain)
        if payload and self.history.publications[payload].is_will:
            self.history.publications[payload].sent.clear()
            self.history.many_sites.add(payload)

    def acknowledged(self, payload: bytes) -> None:
        self.history.acknowledged(payload)

    def sent(self, client: ModelClient, payload: bytes) -> None: ...

    def resent(self, payload: bytes) -> None: ...

    def welcomed(self, client: ModelClient, resumed: bool) -> None: ...

    def delivered(self, client: ModelClient, message: Publish) -> None:
        seen = self.seen.get(client.name)
        self.history.delivered(client, message, seen.through() if seen is not None else None)

    def asking(self, client: ModelClient, filters: Iterable[str]) -> None:
        self.history.asking(client, filters)

    def granted(self, client: ModelClient, topic_filter: str, qos: int) -> None:
        self.history.granted(client, topic_filter, qos)

    def unsubscribing(self, client: ModelClient, topic_filter: str) -> None:
        self.history.unsubscribing(client, topic_filter)

    def disconnected(self, client: ModelClient) -> None:
        """From its gateway. It may have been without a site just then."""
        history, seen = self.history, self.seen.pop(client.name, None)
        history.will_is_free(client.will_payload())
        if seen is not None and seen.connection is not None:
            history.disconnected(client)
        elif not client.persistent:
            history.session_over(client.name)

    def moved(self, client: ModelClient, since: float, will: bytes) -> None: ...

    def said_goodbye(self, client: ModelClient) -> None:
        seen = self.seen.get(client.name)
        self.history.goodbye(client, (seen.way if seen is not None else None) or client.end)

    def will_cancelled(self, payload: bytes) -> None:
        self.history.will_cancelled(payload)
