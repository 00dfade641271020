"""The bytes of datagrams and of exchanges, and what they say.

Owns the format, of our own and versioned. Invariants: what `decode_*` returns was checked in full, so that
nothing of a damaged message is ever acted upon; the same values give the same bytes. Must not know: keys,
states, time.

    datagram  = header body update* mac
    header    = version:u8 kind:u8 from:u64 to:u64 count:u64     `from` and `to` are boots, see `seal`
    body      = PING: seq:u32 incarnation:u32 meta_version:u32 state:u8 (what the prober knows of the probed)
                ACK, NACK: seq:u32   REQUEST: seq:u32 id   GOSSIP: nothing
    update    = type:u8 and its fields; texts and metadata have their length in one byte before them
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from brokerweave.membership.cursor import Cursor, blob
from brokerweave.membership.members import Address, Claim, MemberState
from brokerweave.membership.presets import MOST_META

VERSION = 1
HEADER = Struct("!BBQQQ")
MOST_NUMBER = 0xFFFFFFFF
"""Of incarnations, versions of metadata and probes."""
_PING = Struct("!IIIB")
_U8, _U16, _U32, _U64 = Struct("!B"), Struct("!H"), Struct("!I"), Struct("!Q")
_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,64}")
"""As the configuration wants it: ids name folders."""
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,255}")


class MalformedMessage(Exception):
    """The bytes are no message of this protocol."""


class MessageKind(IntEnum):
    PING = 1
    ACK = 2
    REQUEST = 3
    """Probe somebody for me."""
    NACK = 4
    """Whom you asked about does not answer me either (Lifeguard: at least I do)."""
    GOSSIP = 5


class Ping(NamedTuple):
    seq: int
    incarnation: int
    meta_version: int
    state: int


class Request(NamedTuple):
    seq: int
    target: str


Body = Ping | Request | int | None


class Alive(NamedTuple):
    claim: Claim
    incarnation: int


class RefutedUpdate(NamedTuple):
    """Alive, for those who know the rest."""

    id: str
    boot: int
    incarnation: int


class Suspect(NamedTuple):
    id: str
    incarnation: int
    accuser: str


class Dead(NamedTuple):
    id: str
    incarnation: int
    accuser: str


class Gone(NamedTuple):
    """It said good-bye."""

    id: str
    incarnation: int


class MetaUpdate(NamedTuple):
    id: str
    boot: int
    version: int
    meta: bytes


Update = Alive | RefutedUpdate | Suspect | Dead | Gone | MetaUpdate


class TableEntry(NamedTuple):
    """One line of a table that is exchanged."""

    state: MemberState
    incarnation: int
    claim: Claim


def encode_body(kind: MessageKind, body: Body) -> bytes:
    if isinstance(body, Ping):
        return _PING.pack(*body)
    if isinstance(body, Request):
        return _U32.pack(body.seq) + _text(body.target)
    return b"" if body is None else _U32.pack(body)


def encode_update(update: Update) -> bytes:
    if isinstance(update, Alive):
        return b"\x01" + _U32.pack(update.incarnation) + _claim(update.claim)
    if isinstance(update, RefutedUpdate):
        return b"\x02" + _text(update.id) + _U64.pack(update.boot) + _U32.pack(update.incarnation)
    if isinstance(update, Suspect):
        return b"\x03" + _text(update.id) + _U32.pack(update.incarnation) + _text(update.accuser)
    if isinstance(update, Dead):
        return b"\x04" + _text(update.id) + _U32.pack(update.incarnation) + _text(update.accuser)
    if isinstance(update, Gone):
        return b"\x05" + _text(update.id) + _U32.pack(update.incarnation)
    head = b"\x06" + _text(update.id) + _U64.pack(update.boot) + _U32.pack(update.version)
    return head + blob(update.meta)


def decode_datagram(kind: int, data: bytes) -> tuple[MessageKind, Body, list[Update]]:
    """What is between header and mac. Raises `MalformedMessage`."""
    try:
        known = MessageKind(kind)
        cursor = _Cursor(data)
        body: Body = None
        if known is MessageKind.PING:
            body = cursor.ping()
        elif known is MessageKind.REQUEST:
            body = Request(cursor.u32(), cursor.id())
        elif known is not MessageKind.GOSSIP:
            body = cursor.u32()
        return known, body, [] if cursor.ended else list(_updates(cursor))
    except (error, ValueError) as problem:
        raise MalformedMessage(str(problem)) from None


def encode_table(entries: Iterable[TableEntry]) -> bytes:
    return b"".join(
        _U8.pack(entry.state) + _U32.pack(entry.incarnation) + _claim(entry.claim) for entry in entries
    )


def decode_table(data: bytes) -> list[TableEntry]:
    """Raises `MalformedMessage`."""
    try:
        cursor, entries = _Cursor(data), []
        while not cursor.ended:
            entries.append(TableEntry(MemberState(cursor.u8()), cursor.u32(), cursor.claim()))
        return entries
    except (error, ValueError) as problem:
        raise MalformedMessage(str(problem)) from None


def _updates(cursor: _Cursor) -> Iterator[Update]:
    while not cursor.ended:
        kind = cursor.u8()
        if kind == 1:
            incarnation = cursor.u32()
            yield Alive(cursor.claim(), incarnation)
        elif kind == 2:
            yield RefutedUpdate(cursor.id(), cursor.u64(), cursor.u32())
        elif kind == 3:
            yield Suspect(cursor.id(), cursor.u32(), cursor.id())
        elif kind == 4:
            yield Dead(cursor.id(), cursor.u32(), cursor.id())
        elif kind == 5:
            yield Gone(cursor.id(), cursor.u32())
        elif kind == 6:
            yield MetaUpdate(cursor.id(), cursor.u64(), cursor.u32(), cursor.meta())
        else:
            raise ValueError(f"update {kind}")


def _claim(claim: Claim) -> bytes:
    return b"".join(
        (
            _text(claim.id),
            _U64.pack(claim.boot),
            _address(claim.address),
            _address(claim.link_address),
            _U32.pack(claim.meta_version),
            blob(claim.meta),
        )
    )


def _text(text: str) -> bytes:
    return blob(text.encode())


def _address(address: Address | None) -> bytes:
    return b"\0" if address is None else _text(address[0]) + _U16.pack(address[1])


class _Cursor(Cursor):
    __slots__ = ()

    def ping(self) -> Ping:
        return Ping._make(self.values(_PING))

    def id(self) -> str:
        text = self.blob().decode("ascii")
        if _ID.fullmatch(text) is None:
            raise ValueError("an impossible id")
        return text

    def meta(self) -> bytes:
        data = self.blob()
        if len(data) > MOST_META:
            raise ValueError("too much metadata")
        return data

    def claim(self) -> Claim:
        member, boot, address, link = self.id(), self.u64(), self._address(), self._address()
        if address is None:
            raise ValueError("a member without an address")
        return Claim(member, boot, address, link, self.u32(), self.meta())

    def _address(self) -> Address | None:
        host = self.blob().decode("ascii")
        if not host:
            return None
        if _HOST.fullmatch(host) is None:
            raise ValueError("an impossible host")
        return host, int(self.values(_U16)[0])
