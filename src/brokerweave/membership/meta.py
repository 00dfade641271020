"""What members tell of themselves beside being there: where clients and pings reach them, their health, their
table.

Owns the bytes of `Member.meta`: fields of one byte kind, one byte length and a text or bytes. Invariants:
fields that are not known are skipped, so that a newer member may say more; damaged bytes give what was whole
of them, never an error. Must not know: who uses which field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from brokerweave.membership.members import Address

_CLIENTS, _HEALTH, _TABLE, _MONITOR, _OBSERVER, _STOPS = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class Meta:
    clients: Address | None = None
    """Where clients connect, as others on the network reach it."""
    health: Address | None = None
    """Where its health port is."""
    table: bytes = b""
    """Version and digest of what a strategy has to tell; the strategy's own bytes."""
    monitor: Address | None = None
    """Where it answers the pings of gateways."""
    observer: bool = False
    """It is no node: it only wants to know the members."""
    stops: bool = False
    """It is about to leave in good order, and still serves its clients: who can takes them elsewhere."""

    def encode(self) -> bytes:
        """Raises `ValueError` if a field has more than 255 bytes."""
        fields = []
        if self.clients is not None:
            fields.append((_CLIENTS, _text(*self.clients)))
        for kind, address in ((_HEALTH, self.health), (_MONITOR, self.monitor)):
            if address is not None:
                # Almost always the same host, and room in a datagram is dear.
                same = self.clients is not None and self.clients[0] == address[0]
                fields.append((kind, _text("" if same else address[0], address[1])))
        if self.table:
            fields.append((_TABLE, self.table))
        if self.observer:
            fields.append((_OBSERVER, b""))
        if self.stops:
            fields.append((_STOPS, b""))
        return b"".join(bytes((kind, len(value))) + value for kind, value in fields)

    @classmethod
    def decode(cls, data: bytes) -> Meta:
        fields = dict(_fields(data))
        clients = _address(fields.get(_CLIENTS, b""))
        if clients is not None and not clients[0]:
            clients = None
        health, monitor = (_at(fields.get(kind, b""), clients) for kind in (_HEALTH, _MONITOR))
        table = fields.get(_TABLE, b"")
        return cls(clients, health, table, monitor, _OBSERVER in fields, _STOPS in fields)


def _at(raw: bytes, clients: Address | None) -> Address | None:
    """An address whose host may be left out: then it is that of `clients`."""
    found = _address(raw)
    if found is None or found[0]:
        return found
    return (clients[0], found[1]) if clients is not None else None


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 2 <= len(data) and at + 2 + data[at + 1] <= len(data):
        end = at + 2 + data[at + 1]
        yield data[at], data[at + 2 : end]
        at = end


def _text(host: str, port: int) -> bytes:
    return f"{host}:{port}".encode()


def _address(raw: bytes) -> Address | None:
    host, _, port = raw.decode(errors="replace").rpartition(":")
    if not port.isascii() or not port.isdigit() or len(port) > 5 or not 0 < int(port) < 65_536:
        return None
    return host, int(port)
