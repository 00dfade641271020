"""The header of the PROXY protocol, version 2: tells who really connects.

Owns its bytes (HAProxy's specification, 2.2). Invariants: a header is complete, so that what follows it is
MQTT and nothing else; what is read of one is as it was written. Must not know: sockets, who asks for it, what
is believed of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from brokerweave.errors import RemoteProtocolError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
TICKET = 0xE0
"""The private TLV with a ticket (`session.move_ticket`)."""
MOST = 216 + 4096
"""Bytes behind the fixed part that are read of anybody: the largest addresses, and a ticket beside others."""
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP_4, _TCP_6 = 0x00, 0x11, 0x21
_FIXED = len(SIGNATURE) + 4
_ADDRESS_BYTES = {_TCP_4: 4, _TCP_6: 16}

LOCAL = SIGNATURE + bytes((_LOCAL, _UNSPECIFIED, 0, 0))
"""Take the connection's own ends: there is nobody else to name."""


@dataclass(frozen=True, slots=True)
class Header:
    size: int
    """Bytes that it takes."""
    source: tuple[str, int] | None
    """Whose connection it is; None: its own ends count."""
    tlvs: tuple[tuple[int, bytes], ...]

    def tlv(self, kind: int) -> bytes | None:
        return next((value for each, value in self.tlvs if each == kind), None)


def encode(source: object, destination: object, *tlvs: tuple[int, bytes]) -> bytes:
    """The header for a client at `source` that connected to `destination`, as sockets name addresses.

    `LOCAL` where they are no pair of IP addresses (a Unix socket has none, a closed one neither). `tlvs`:
    what it says besides, each with its type.
    """
    said = b"".join(bytes((kind,)) + len(value).to_bytes(2, "big") + value for kind, value in tlvs)
    try:
        (host, port), (own_host, own_port) = _endpoint(source), _endpoint(destination)
    except (TypeError, ValueError, IndexError):
        return _framed(_LOCAL, _UNSPECIFIED, said)
    if host.version != own_host.version:
        return _framed(_LOCAL, _UNSPECIFIED, said)
    family = _TCP_4 if host.version == 4 else _TCP_6
    ports = port.to_bytes(2, "big") + own_port.to_bytes(2, "big")
    return _framed(_PROXY, family, host.packed + own_host.packed + ports + said)


def _framed(command: int, family: int, body: bytes) -> bytes:
    return b"".join((SIGNATURE, bytes((command, family)), len(body).to_bytes(2, "big"), body))


def own(extra_info: Callable[[str], object]) -> bytes:
    """The header for a connection that the node opens on nobody's behalf, from what its transport knows.

    It names the connection's own ends, which is what `LOCAL` means: RabbitMQ 3.10 crashes on `LOCAL`.
    """
    return encode(extra_info("sockname"), extra_info("peername"))


def decode(data: bytes) -> Header | None:
    """The header with which `data` begins; None: more has to come. Raises `RemoteProtocolError`."""
    if not SIGNATURE.startswith(data[: len(SIGNATURE)]):
        raise RemoteProtocolError("no header of the PROXY protocol, version 2")
    if len(data) < _FIXED:
        return None
    command, family = data[_FIXED - 4], data[_FIXED - 3]
    size = int.from_bytes(data[_FIXED - 2 : _FIXED], "big")
    if command not in (_LOCAL, _PROXY) or size > MOST:
        raise RemoteProtocolError("a header of the PROXY protocol that cannot be read")
    if len(data) < _FIXED + size:
        return None
    body, source = data[_FIXED : _FIXED + size], None
    width = _ADDRESS_BYTES.get(family, 0)
    if len(body) < 2 * width + 4 * bool(width):
        raise RemoteProtocolError("a header of the PROXY protocol without its addresses")
    if width and command == _PROXY:
        source = str(ip_address(body[:width])), int.from_bytes(body[2 * width : 2 * width + 2], "big")
    at = 2 * width + 4 * bool(width)
    return Header(_FIXED + size, source, tuple(_tlvs(body[at:])))


def _tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length = int.from_bytes(data[1:3], "big")
        if len(data) < 3 + length:
            raise RemoteProtocolError("a header of the PROXY protocol that is cut off")
        yield data[0], data[3 : 3 + length]
        data = data[3 + length :]


def _endpoint(name: object) -> tuple[IPv4Address | IPv6Address, int]:
    if not isinstance(name, tuple):
        raise TypeError("not an IP socket's name")
    address = ip_address(str(name[0]).partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # an IPv4 client of a listener for both
    return address, int(name[1])
