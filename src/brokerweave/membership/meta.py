"""What members tell of themselves beside being there: where clients reach them, their health, their table.

Owns the bytes of `Member.meta`: fields of one byte kind, one byte length and a text or bytes. Invariants:
fields that are not known are skipped, so that a newer member may say more; damaged bytes give what was whole
of them, never an error. Must not know: who uses which field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from brokerweave.membership.members import Address

_CLIENTS, _HEALTH, _TABLE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Meta:
    clients: Address | None = None
    """Where clients connect, as others on the network reach it."""
    health: Address | None = None
    """Where its health port is."""
    table: bytes = b""
    """Version and digest of what a strategy has to tell; the strategy's own bytes."""

    def encode(self) -> bytes:
        """Raises `ValueError` if a field has more than 255 bytes."""
        fields = []
        if self.clients is not None:
            fields.append((_CLIENTS, _text(*self.clients)))
        if self.health is not None:
            # Almost always the same host, and room in a datagram is dear.
            same = self.clients is not None and self.clients[0] == self.health[0]
            fields.append((_HEALTH, _text("" if same else self.health[0], self.health[1])))
        if self.table:
            fields.append((_TABLE, self.table))
        return b"".join(bytes((kind, len(value))) + value for kind, value in fields)

    @classmethod
    def decode(cls, data: bytes) -> Meta:
        fields = dict(_fields(data))
        clients = _address(fields.get(_CLIENTS, b""))
        health = _address(fields.get(_HEALTH, b""))
        if health is not None and not health[0]:
            health = (clients[0], health[1]) if clients is not None else None
        return cls(clients if clients and clients[0] else None, health, fields.get(_TABLE, b""))


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
