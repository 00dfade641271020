"""What the users of a mesh did and saw: publications, sessions, subscriptions, and what arrived.

Owns these records, as they are told by the clients themselves. Invariant: nothing here comes from inside a
node; what a node or a broker had read of a connection is known from the connection. Must not know: faults,
what is promised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.topics import matches
from brokerweave.sim.client import ModelClient


class WayOut(Protocol):
    """From a client to the node of its site; a `PipeEnd` is one."""

    @property
    def written(self) -> int: ...

    @property
    def broken(self) -> bool: ...

    def was_read(self, written: int) -> bool:
        """Whether the node has read what was written by then."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A publisher wrote a publication to a node."""

    at: float
    site: str
    ready: bool
    """What the node's health port said then."""


@dataclass(slots=True)
class PublishedMessage:
    payload: bytes
    client: str
    number: int
    topic: str
    qos: int
    retain: bool
    is_will: bool
    made: float
    sent: list[Sending] = field(default_factory=list)
    """More than one if there was no answer."""
    acknowledged: float = inf
    first: float = inf
    """When it arrived at a client for the first time."""

    @property
    def at(self) -> float:
        return self.sent[0].at if self.sent else self.made

    @property
    def sites(self) -> set[str]:
        return {sending.site for sending in self.sent}


@dataclass(slots=True, eq=False)
class Connection:
    """From CONNACK to its end."""

    site: str
    end: WayOut
    since: float
    resumed: bool
    until: float = inf
    """When its client noticed that it is over."""
    site_died: float = inf
    """When its node was killed, or its broker died, while it was whole."""
    left: bool = False
    """Its client moved as planned, while something was broken."""
    unread: set[bytes] = field(default_factory=set)
    """What its client had got, and its node or broker had not read the answer, when it ended."""

    @property
    def over(self) -> float:
        return min(self.until, self.site_died)


@dataclass(slots=True, eq=False)
class Receipt:
    """A message arrived at a client."""

    payload: bytes
    at: float
    qos: int
    dup: bool
    connection: Connection
    answered: int
    """The bytes that the client had written with its answer."""

    @property
    def was_read(self) -> bool:
        """Whether the node has read the answer."""
        return self.connection.end.was_read(self.answered)


@dataclass(slots=True, eq=False)
class Want:
    """A subscription, from SUBACK until the client, or the end of its session, withdrew it."""

    client: str
    topic_filter: str
    qos: int
    site: str
    since: float
    until: float = inf


class History:
    """Implements `Observer` for clients."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.publications: dict[bytes, PublishedMessage] = {}
        self.deletions: list[tuple[float, str, str]] = []
        """When, where and on which topic a client deleted what is retained."""
        self.connections: defaultdict[str, list[Connection]] = defaultdict(list)
        self.receipts: defaultdict[tuple[str, bytes], list[Receipt]] = defaultdict(list)
        self.got: defaultdict[str, list[Receipt]] = defaultdict(list)
        """By client, in the order of arrival."""
        self.wants: defaultdict[str, list[Want]] = defaultdict(list)
        self.granted_at: defaultdict[str, list[float]] = defaultdict(list)
        """When a client got a SUBACK."""
        self.goodbyes: dict[bytes, tuple[float, WayOut, int]] = {}
        """By will: when the client took leave, and the bytes that it had written by then."""
        self.moved_from: dict[bytes, float] = {}
        """By will: when the client had moved as planned, and nothing else had happened."""
        self.many_sites: set[bytes] = set()
        """Wills of clients of gateways: they are the same at each site."""
        self.will_free: dict[bytes, float] = {}
        """By will: since when its client's connection, or that of its gateway, may have ended."""
        self.retained: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        """By client: when it got a message that was stored, and on which topic."""
        self.asked: defaultdict[str, list[tuple[float, frozenset[str]]]] = defaultdict(list)
        """By client: when it subscribed to what."""
        self.disturbed: Callable[[float], bool] = lambda since: False
        """Whether anything was broken since."""
        self.cancelled: dict[bytes, float] = {}
        """Delayed wills whose clients came back in time."""
        self.arrived = 0
        """How many messages, of any kind."""
        self.unknown: list[str] = []
        self.persistent: dict[str, bool] = {}
        self.ready: Callable[[str], bool] = lambda site: True
        """What the health port of a node says."""
        self.at_broker: Callable[[str, str], set[bytes]] = lambda site, client: set()
        """What a broker sent to a client and had no answer to."""

    # The publisher

    def made(self, client: ModelClient, payload: bytes, topic: str, qos: int, retain: bool) -> None:
        self.persistent[client.name] = client.persistent
        if not payload:
            self.deletions.append((self.now(), client.site, topic))
            return
        name, _, number = payload.decode().replace("!", ":!").partition(":")
        is_will = number.startswith("!")
        publication = PublishedMessage(
            payload, name, int(number.lstrip("!")), topic, qos, retain, is_will, self.now()
        )
        self.publications[payload] = publication
        if is_will:
            self.sent(client, payload)

    def sent(self, client: ModelClient, payload: bytes) -> None:
        self.sent_to(client.site, payload)

    def sent_to(self, site: str, payload: bytes) -> None:
        """A client, or its gateway, wrote it to a node."""
        if payload:
            self.publications[payload].sent.append(Sending(self.now(), site, self.ready(site)))

    def resent(self, payload: bytes) -> None: ...

    def acknowledged(self, payload: bytes) -> None:
        if payload:
            publication = self.publications[payload]
            publication.acknowledged = min(publication.acknowledged, self.now())

    # The subscriber

    def welcomed(self, client: ModelClient, resumed: bool) -> None:
        assert client.end is not None
        self.persistent[client.name] = client.persistent
        self.connections[client.name].append(Connection(client.site, client.end, self.now(), resumed))

    def asking(self, client: ModelClient, filters: Iterable[str]) -> None:
        self.asked[client.name].append((self.now(), frozenset(filters)))

    def granted(self, client: ModelClient, topic_filter: str, qos: int) -> None:
        self.granted_at[client.name].append(self.now())
        if not any(want.topic_filter == topic_filter for want in self.open_wants(client.name)):
            self.wants[client.name].append(Want(client.name, topic_filter, qos, client.site, self.now()))

    def unsubscribing(self, client: ModelClient, topic_filter: str) -> None:
        for want in self.open_wants(client.name):
            if want.topic_filter == topic_filter:
                want.until = self.now()

    def delivered(self, client: ModelClient, message: Publish, through: Connection | None = None) -> None:
        """`through`: what it came through, if that is not the client's last connection."""
        payload = message.payload
        self.arrived += 1
        if message.retain or not payload:
            if message.retain and not message.dup:
                self.retained[client.name].append((self.now(), message.topic))
            return  # stored at the broker, given to a new subscriber: nobody was promised when
        if payload not in self.publications:
            self.unknown.append(f"{client.name} got {payload!r}, which nobody published")
            return
        connection = through or self.connections[client.name][-1]
        receipt = Receipt(payload, self.now(), message.qos, message.dup, connection, connection.end.written)
        publication = self.publications[payload]
        publication.first = min(publication.first, self.now())
        self.receipts[client.name, payload].append(receipt)
        self.got[client.name].append(receipt)

    def disconnected(self, client: ModelClient) -> None:
        connection = self.connections[client.name][-1]
        connection.until = self.now()
        if connection.site_died == inf:
            self._note_unread(client.name, connection)
            if not client.persistent:
                self._end_session(client.name)

    def moved(self, client: ModelClient, since: float, will: bytes) -> None:
        """Unless something was broken, nothing is in flight then, and its session goes on."""
        connection = self.connections[client.name][-1]
        if connection.site_died < inf or self.disturbed(since):
            connection.left = True
            self.disconnected(client)
        else:
            connection.until = self.now()
            self.moved_from[will] = self.now()

    def said_goodbye(self, client: ModelClient) -> None:
        """Called before it says so."""
        self.goodbye(client, client.end)

    def goodbye(self, client: ModelClient, end: WayOut | None) -> None:
        if end is not None:
            self.goodbyes[client.will_payload()] = (self.now(), end, end.written + 1)
        if not client.persistent:
            self._end_session(client.name)

    def will_cancelled(self, payload: bytes) -> None:
        self.cancelled[payload] = self.now()

    def will_is_free(self, payload: bytes) -> None:
        """Its client has left its gateway, or that its site: where it moved before does not matter."""
        self.will_free.setdefault(payload, self.now())

    def session_over(self, client: str) -> None:
        self._end_session(client)

    # What befalls a site

    def site_dies(self, site: str) -> None:
        """Its node, or its broker, is about to die."""
        for client, connections in self.connections.items():
            connection = connections[-1]
            end = connection.end
            if connection.site == site and connection.over == inf and not end.broken:
                connection.site_died = self.now()
                self._note_unread(client, connection)

    def _note_unread(self, client: str, connection: Connection) -> None:
        waiting = self.at_broker(connection.site, client)
        for receipt in reversed(self.got[client]):
            if receipt.connection is not connection:
                break
            if receipt.qos and (receipt.payload in waiting or not receipt.was_read):
                connection.unread.add(receipt.payload)

    def _end_session(self, client: str) -> None:
        for want in self.open_wants(client):
            want.until = self.now()

    # Questions

    def open_wants(self, client: str) -> list[Want]:
        return [want for want in self.wants[client] if want.until == inf]

    def wanted(self, client: str, publication: PublishedMessage) -> bool:
        """Whether a client was granted a publication, at QoS 1 or 2, when it was made, for good or not."""
        return publication.qos > 0 and any(
            want.qos
            and want.since < publication.at < want.until
            and matches(want.topic_filter, publication.topic)
            for want in self.wants[client]
        )

    def receipts_of(self, payload: bytes) -> list[list[Receipt]]:
        """Those of each client that got it."""
        every = (self.receipts.get((client, payload)) for client in self.got)
        return [receipts for receipts in every if receipts]

    def promised(self) -> Iterator[tuple[str, PublishedMessage, Want]]:
        """Who is to have got what by the end: publications that were acknowledged, and wanted since before
        they were published until the end."""
        for client in list(self.wants):
            wants = [want for want in self.open_wants(client) if want.qos]
            for publication in self.publications.values():
                if not publication.qos or publication.acknowledged == inf:
                    continue
                for want in wants:
                    if want.since < publication.at and matches(want.topic_filter, publication.topic):
                        yield client, publication, want
                        break
