"""The header of the PROXY protocol, version 2: tells a broker who really connects.

Owns its bytes (HAProxy's specification, 2.2). Invariant: a header is complete, so that what follows it is
MQTT and nothing else. Must not know: sockets, which brokers ask for it.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP_4, _TCP_6 = 0x00, 0x11, 0x21

LOCAL = _SIGNATURE + bytes((_LOCAL, _UNSPECIFIED, 0, 0))
"""Take the connection's own ends: there is nobody else to name."""


def encode(source: object, destination: object) -> bytes:
    """The header for a client at `source` that connected to `destination`, as sockets name addresses.

    `LOCAL` where they are no pair of IP addresses (a Unix socket has none, a closed one neither).
    """
    try:
        (host, port), (own_host, own_port) = _endpoint(source), _endpoint(destination)
    except (TypeError, ValueError, IndexError):
        return LOCAL
    if host.version != own_host.version:
        return LOCAL
    family = _TCP_4 if host.version == 4 else _TCP_6
    body = b"".join((host.packed, own_host.packed, port.to_bytes(2, "big"), own_port.to_bytes(2, "big")))
    return b"".join((_SIGNATURE, bytes((_PROXY, family)), len(body).to_bytes(2, "big"), body))


def own(extra_info: Callable[[str], object]) -> bytes:
    """The header for a connection that the node opens on nobody's behalf, from what its transport knows.

    It names the connection's own ends, which is what `LOCAL` means: RabbitMQ 3.10 crashes on `LOCAL`.
    """
    return encode(extra_info("sockname"), extra_info("peername"))


def _endpoint(name: object) -> tuple[IPv4Address | IPv6Address, int]:
    if not isinstance(name, tuple):
        raise TypeError("not an IP socket's name")
    address = ip_address(str(name[0]).partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # an IPv4 client of a listener for both
    return address, int(name[1])
