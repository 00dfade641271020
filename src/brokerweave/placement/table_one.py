"""EMMA's six packets (Table I), at the sizes that the paper gives, for loopback and tests: nothing
authenticates them.

Owns their bytes. The paper gives names and sizes alone; what is in them follows from its text (V-A, V-B.2)
and fills the sizes: numbers of 4 bytes, IPv4 addresses, and a gateway's name of 36 bytes, the length of a
UUID. Invariants: `decode` returns None for whatever is no packet of the exact size; the same packet gives the
same bytes. Must not know: who sends them.

    QOSREQ    13  type:u8 number:u32 ip:4 port:u16 pings:u8 interval:u8 (10 ms)
    QOSRESP    9  type:u8 number:u32 mean:u32 (µs; all ones: no answer)
    PINGREQ    5  type:u8 number:u32                    PINGRESP 5  the same
    RECONNREQ 47  type:u8 number:u32 gateway:36 ip:4 port:u16
    RECONNACK 47  the same: where the gateway is now; number 0 registers it, address 0 asks for a site

"""

from __future__ import annotations

from ipaddress import IPv4Address
from math import inf
from struct import Struct
from typing import NamedTuple

from brokerweave.errors import LocalProtocolError

Address = tuple[str, int]
MOST_NAME = 36
NOWHERE: Address = ("0.0.0.0", 0)
_NO_ANSWER = 0xFFFFFFFF
_QOSREQ, _QOSRESP, _PING = Struct("!BI4sHBB"), Struct("!BII"), Struct("!BI")
_RECONN = Struct(f"!BI{MOST_NAME}s4sH")


class QosRequest(NamedTuple):
    number: int
    target: Address
    pings: int = 10
    interval: float = 0.25


class QosResponse(NamedTuple):
    number: int
    mean: float
    """Seconds; infinite if no ping was answered."""


class PingRequest(NamedTuple):
    number: int


class PingResponse(NamedTuple):
    number: int


class Reconnect(NamedTuple):
    """RECONNREQ: go to this site."""

    number: int
    gateway: str
    site: Address


class Reconnected(NamedTuple):
    """RECONNACK: this is where the gateway is."""

    number: int
    gateway: str
    site: Address


TableOne = QosRequest | QosResponse | PingRequest | PingResponse | Reconnect | Reconnected
_TYPES: dict[type, int] = {
    QosRequest: 1,
    QosResponse: 2,
    PingRequest: 3,
    PingResponse: 4,
    Reconnect: 5,
    Reconnected: 6,
}


def encode(packet: TableOne) -> bytes:
    """Raises `LocalProtocolError` for what Table I has no room for: other than IPv4, too long a name."""
    kind = _TYPES[type(packet)]
    if isinstance(packet, QosRequest):
        interval = round(packet.interval * 100)
        return _QOSREQ.pack(kind, packet.number, *_ip(packet.target), packet.pings, interval)
    if isinstance(packet, QosResponse):
        mean = _NO_ANSWER if packet.mean == inf else min(round(packet.mean * 1e6), _NO_ANSWER - 1)
        return _QOSRESP.pack(kind, packet.number, mean)
    if isinstance(packet, (Reconnect, Reconnected)):
        name = packet.gateway.encode()
        if len(name) > MOST_NAME:
            raise LocalProtocolError(
                f"the id {packet.gateway} has more than the {MOST_NAME} bytes of Table I"
            )
        return _RECONN.pack(kind, packet.number, name, *_ip(packet.site))
    return _PING.pack(kind, packet.number)


def decode(data: bytes) -> TableOne | None:
    kind = data[0] if data else 0
    if kind == 1 and len(data) == _QOSREQ.size:
        _, number, ip, port, pings, interval = _QOSREQ.unpack(data)
        return QosRequest(number, _address(ip, port), pings, interval / 100) if pings else None
    if kind == 2 and len(data) == _QOSRESP.size:
        _, number, mean = _QOSRESP.unpack(data)
        return QosResponse(number, inf if mean == _NO_ANSWER else mean / 1e6)
    if kind in (3, 4) and len(data) == _PING.size:
        number = _PING.unpack(data)[1]
        return PingRequest(number) if kind == 3 else PingResponse(number)
    if kind in (5, 6) and len(data) == _RECONN.size:
        _, number, raw, ip, port = _RECONN.unpack(data)
        name = raw.rstrip(b"\0").decode(errors="replace")
        made = Reconnect if kind == 5 else Reconnected
        return made(number, name, _address(ip, port)) if name else None
    return None


def _ip(address: Address) -> tuple[bytes, int]:
    try:
        return IPv4Address(address[0]).packed, address[1]
    except ValueError:
        raise LocalProtocolError(f"{address[0]} is no IPv4 address: Table I has no room for others") from None


def _address(ip: bytes, port: int) -> Address:
    return str(IPv4Address(ip)), port
