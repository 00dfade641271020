"""What gateways, sites and controllers say to each other in sealed datagrams, and its bytes.

Owns the format, of our own and versioned by the seal's header. Invariants: what `decode` returns was checked
in full; every message fits into one datagram, and lists that may not are cut into pages by whoever makes
them. Numbers of time are seconds. Must not know: keys, addresses of senders, what follows from a message.

texts and hosts have their length in one byte before them; a round trip of -1 is none
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from hashlib import sha256
from math import inf, isfinite
from struct import Struct, error
from typing import NamedTuple

from brokerweave.errors import RemoteProtocolError
from brokerweave.membership.cursor import Cursor, blob
from brokerweave.membership.presets import MOST_DATAGRAM
from brokerweave.membership.seal import MAC
from brokerweave.membership.wire import HEADER
from brokerweave.placement.history import MoveOutcome

Address = tuple[str, int]
ROOM = MOST_DATAGRAM - HEADER.size - MAC
MOST_TEXT = 200
"""Bytes of a client's id that are told; see `client_key`."""


class Kind(IntEnum):
    """1 and 2 are the channel's own."""

    PING = 3
    PONG = 4
    REPORT = 5
    RECEIPT = 6
    SITES = 7
    CLIENTS = 8
    PLACE = 9
    PLACED = 10
    MOVE = 11
    MOVED = 12


class SitePing(NamedTuple):
    seq: int


class SitePong(NamedTuple):
    seq: int
    cpu: float
    """The share of one CPU that the site's node uses."""


class SiteReading(NamedTuple):
    site: str
    age: float
    mean: float
    jitter: float
    loss: float
    pings: int
    cpu: float


class Report(NamedTuple):
    """A gateway to each controller, every few seconds."""

    gateway: str
    follows: str
    """The controller whose orders it takes; empty if it has heard none yet."""
    sites: int
    """The digest of the list of sites that it has."""
    clients: int
    """The revision of its list of clients."""
    measured: tuple[SiteReading, ...] = ()


class ReportReceipt(NamedTuple):
    """The controller's answer to a report, and to each page of clients."""

    controller: str
    clients: int
    """The revision up to which it has the gateway's list."""


class SiteEntry(NamedTuple):
    name: str
    clients: Address
    monitor: Address | None
    guess: float | None
    """Of the round trip from this gateway."""


class SitePage(NamedTuple):
    digest: int
    page: int
    pages: int
    sites: tuple[SiteEntry, ...]


class ClientEntry(NamedTuple):
    client: str
    site: str
    """Empty: it left."""
    rate: float


class ClientPage(NamedTuple):
    """What changed in a gateway's list after one revision, up to another."""

    gateway: str
    after: int
    upto: int
    clients: tuple[ClientEntry, ...]


class PlaceRequest(NamedTuple):
    """Where should this new client go?"""

    seq: int
    gateway: str
    client: str


class PlaceAnswer(NamedTuple):
    seq: int
    sites: tuple[str, ...]
    """Best first."""


class MoveRequest(NamedTuple):
    number: int
    client: str
    origin: str
    target: str


class OrderResult(NamedTuple):
    gateway: str
    number: int
    outcome: MoveOutcome
    note: str


Message = (
    SitePing
    | SitePong
    | Report
    | ReportReceipt
    | SitePage
    | ClientPage
    | PlaceRequest
    | PlaceAnswer
    | MoveRequest
    | OrderResult
)

_PONG, _HEAD, _PAGE = Struct("!IH"), Struct("!II"), Struct("!IBB")
_MEASURED, _ENTRY = Struct("!fffBBH"), Struct("!f")
_U16, _U32, _U64, _F32 = Struct("!H"), Struct("!I"), Struct("!Q"), Struct("!f")
_OUTCOMES = tuple(MoveOutcome)


def client_key(client: str) -> str:
    """The name by which a client is known to controllers: its id, if that is not too long."""
    raw = client.encode(errors="replace")
    if len(raw) <= MOST_TEXT:
        return client
    return f"{raw[:64].decode(errors='ignore')}~{sha256(raw).hexdigest()[:32]}"


def encode(message: Message) -> tuple[Kind, bytes]:
    """The kind of the message, and its content."""
    kind, make = _ENCODERS[type(message)]
    return kind, make(message)


def decode(kind: int, content: bytes) -> Message:
    """Raises `RemoteProtocolError`."""
    try:
        reader = _Reader(content)
        message = _DECODERS[Kind(kind)](reader)
        if not reader.ended:
            raise ValueError("too long")
        return message
    except (error, ValueError, IndexError) as problem:
        raise RemoteProtocolError(f"a datagram cannot be read: {problem}") from None


def measured_size(entry: SiteReading) -> int:
    return 1 + len(entry.site.encode()) + _MEASURED.size


def client_size(entry: ClientEntry) -> int:
    return 2 + len(entry.client.encode()) + len(entry.site.encode()) + _ENTRY.size


def site_size(entry: SiteEntry) -> int:
    hosts = entry.clients[0] + (entry.monitor[0] if entry.monitor else "")
    return 3 + len(entry.name.encode()) + len(hosts.encode()) + 4 + _F32.size


# Out


def _text(text: str) -> bytes:
    return blob(text.encode()[:255])


def _address(address: Address | None) -> bytes:
    return _text("") + _U16.pack(0) if address is None else _text(address[0]) + _U16.pack(address[1])


def _cpu(share: float) -> int:
    return min(max(round(share * 1000), 0), 0xFFFF)


def _report(message: Report) -> bytes:
    head = _text(message.gateway) + _text(message.follows) + _HEAD.pack(message.sites, message.clients)
    return head + b"".join(
        _text(each.site)
        + _MEASURED.pack(
            each.age,
            each.mean if isfinite(each.mean) else -1.0,
            each.jitter,
            round(each.loss * each.pings),
            each.pings,
            _cpu(each.cpu),
        )
        for each in message.measured
    )


def _site_page(message: SitePage) -> bytes:
    return _PAGE.pack(message.digest, message.page, message.pages) + b"".join(
        _text(each.name)
        + _address(each.clients)
        + _address(each.monitor)
        + _F32.pack(-1.0 if each.guess is None else each.guess)
        for each in message.sites
    )


def _client_page(message: ClientPage) -> bytes:
    return (
        _text(message.gateway)
        + _HEAD.pack(message.after, message.upto)
        + b"".join(_text(each.client) + _text(each.site) + _ENTRY.pack(each.rate) for each in message.clients)
    )


def _move_result(message: OrderResult) -> bytes:
    outcome = bytes([_OUTCOMES.index(message.outcome)])
    note = message.note.encode()[:MOST_TEXT].decode(errors="ignore")
    return _text(message.gateway) + _U64.pack(message.number) + outcome + _text(note)


_ENCODERS: dict[type, tuple[Kind, Callable[..., bytes]]] = {
    SitePing: (Kind.PING, lambda each: _U32.pack(each.seq)),
    SitePong: (Kind.PONG, lambda each: _PONG.pack(each.seq, _cpu(each.cpu))),
    Report: (Kind.REPORT, _report),
    ReportReceipt: (Kind.RECEIPT, lambda each: _text(each.controller) + _U32.pack(each.clients)),
    SitePage: (Kind.SITES, _site_page),
    ClientPage: (Kind.CLIENTS, _client_page),
    PlaceRequest: (Kind.PLACE, lambda each: _U32.pack(each.seq) + _text(each.gateway) + _text(each.client)),
    PlaceAnswer: (Kind.PLACED, lambda each: _U32.pack(each.seq) + b"".join(map(_text, each.sites))),
    MoveRequest: (Kind.MOVE, lambda each: _U64.pack(each.number) + b"".join(map(_text, each[1:]))),
    OrderResult: (Kind.MOVED, _move_result),
}


# In


class _Reader(Cursor):
    __slots__ = ()

    def text(self) -> str:
        return self.blob().decode()

    def name(self) -> str:
        """A text that is not empty."""
        text = self.text()
        if not text:
            raise ValueError("an empty name")
        return text

    def address(self) -> Address | None:
        host, port = self.text(), int(self.values(_U16)[0])
        if bool(host) != bool(port):
            raise ValueError("half of an address")
        return (host, port) if host else None

    def number(self) -> float:
        """Finite, and not negative."""
        value = float(self.values(_F32)[0])
        if not isfinite(value) or value < 0:
            raise ValueError("an impossible number")
        return value

    def round_trip(self) -> float | None:
        value = float(self.values(_F32)[0])
        if value == -1.0:
            return None
        if not isfinite(value) or value < 0:
            raise ValueError("an impossible round trip")
        return value


def _read_report(reader: _Reader) -> Report:
    gateway, follows = reader.name(), reader.text()
    sites, clients = reader.values(_HEAD)
    measured = []
    while not reader.ended:
        site, age, mean, jitter = reader.name(), reader.number(), reader.round_trip(), reader.number()
        lost, pings, cpu = reader.u8(), reader.u8(), int(reader.values(_U16)[0])
        if not pings or lost > pings or (mean is None) != (lost == pings):
            raise ValueError("an impossible measurement")
        trip = inf if mean is None else mean
        measured.append(SiteReading(site, age, trip, jitter, lost / pings, pings, cpu / 1000))
    return Report(gateway, follows, sites, clients, tuple(measured))


def _read_sites(reader: _Reader) -> SitePage:
    digest, page, pages = reader.values(_PAGE)
    if page >= pages:
        raise ValueError("a page after the last")
    sites = []
    while not reader.ended:
        name, clients, monitor = reader.name(), reader.address(), reader.address()
        if clients is None:
            raise ValueError("a site without an address")
        sites.append(SiteEntry(name, clients, monitor, reader.round_trip()))
    return SitePage(digest, page, pages, tuple(sites))


def _read_clients(reader: _Reader) -> ClientPage:
    gateway, (after, upto) = reader.name(), reader.values(_HEAD)
    if upto < after:
        raise ValueError("a page that goes back")
    clients = []
    while not reader.ended:
        clients.append(ClientEntry(reader.name(), reader.text(), reader.number()))
    return ClientPage(gateway, after, upto, tuple(clients))


def _read_placed(reader: _Reader) -> PlaceAnswer:
    seq, sites = reader.u32(), []
    while not reader.ended:
        sites.append(reader.name())
    return PlaceAnswer(seq, tuple(sites))


def _read_pong(reader: _Reader) -> SitePong:
    seq, cpu = reader.values(_PONG)
    return SitePong(seq, cpu / 1000)


_DECODERS: dict[Kind, Callable[[_Reader], Message]] = {
    Kind.PING: lambda reader: SitePing(reader.u32()),
    Kind.PONG: _read_pong,
    Kind.REPORT: _read_report,
    Kind.RECEIPT: lambda reader: ReportReceipt(reader.name(), reader.u32()),
    Kind.SITES: _read_sites,
    Kind.CLIENTS: _read_clients,
    Kind.PLACE: lambda reader: PlaceRequest(reader.u32(), reader.name(), reader.name()),
    Kind.PLACED: _read_placed,
    Kind.MOVE: lambda reader: MoveRequest(reader.u64(), reader.name(), reader.name(), reader.name()),
    Kind.MOVED: lambda reader: OrderResult(
        reader.name(), reader.u64(), _OUTCOMES[reader.u8()], reader.text()
    ),
}
