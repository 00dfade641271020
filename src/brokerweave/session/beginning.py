"""What a connection begins with, before its CONNECT: nothing, or a header with the ticket of a planned move.

Owns the first bytes of a connection, until it is known what they are. Invariants: what follows a header goes
on unchanged, and so does all that begins otherwise; a header counts only with a good ticket. Must not know:
sockets, what a move is.
"""

from __future__ import annotations

from brokerweave.errors import Refused
from brokerweave.session import proxy_header
from brokerweave.session.move_ticket import NOT_AUTHORIZED, PlannedMove, Tickets


class Beginning:
    __slots__ = ("_data", "move", "source")

    def __init__(self) -> None:
        self._data = b""
        self.move: PlannedMove | None = None
        self.source: tuple[str, int] | None = None
        """Who is behind the connection, if it says so."""

    def feed(self, data: bytes, tickets: Tickets, now: float) -> bytes | None:
        """What of the stream follows; None: more has to come. Raises `RemoteProtocolError` if nobody may
        begin so."""
        data, self._data = self._data + data, b""
        if not proxy_header.SIGNATURE.startswith(data[: len(proxy_header.SIGNATURE)]):
            return data
        header = proxy_header.decode(data)
        if header is None:
            self._data = data
            return None
        ticket = header.tlv(proxy_header.TICKET)
        if ticket is None:
            raise Refused("a header of the PROXY protocol without a ticket", NOT_AUTHORIZED)
        self.move = tickets.take(ticket, now)
        self.source = header.source
        return data[header.size :]
