"""A ticket says who moves where, once, and nobody without the cluster's key can make one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.session import proxy_header
from brokerweave.session.beginning import Beginning
from brokerweave.session.move_ticket import PlannedMove, TicketRefused, Tickets, make

KEY, NOW = b"the shared key", 1_000_000.0
MOVE = PlannedMove("client é", "a", "b", b"0123456789abcdef")
TICKET = make(KEY, MOVE, NOW + 5)
SOURCE = ("192.0.2.1", 49152)
HEADER = proxy_header.encode(
    SOURCE, ("198.51.100.2", 1883), (0x04, b"padding"), (proxy_header.TICKET, TICKET)
)
CONNECT = b"\x10\r\x00\x04MQTT\x04\x02\x00<\x00\x01c"


def tickets(key: bytes = KEY, node: str = "b") -> Tickets:
    return Tickets(key, node)


def refusal(taker: Tickets, ticket: bytes, now: float = NOW) -> str:
    with pytest.raises(TicketRefused) as refused:
        taker.take(ticket, now)
    return str(refused.value)


def test_a_ticket_reads_back_equal() -> None:
    assert tickets().take(TICKET, NOW) == MOVE


def test_a_ticket_is_good_once() -> None:
    taker = tickets()
    taker.take(TICKET, NOW)
    assert "used before" in refusal(taker, TICKET)
    assert "used before" in refusal(taker, make(KEY, MOVE, NOW + 60))
    assert "expired" in refusal(taker, TICKET, NOW + 5)


def test_the_number_of_an_expired_ticket_is_forgotten() -> None:
    taker = tickets()
    taker.take(TICKET, NOW)
    other = replace(MOVE, number=bytes(16))
    taker.take(make(KEY, other, NOW + 60), NOW + 5)
    assert taker.take(make(KEY, MOVE, NOW + 60), NOW + 5) == MOVE


@pytest.mark.parametrize("at", range(len(TICKET)))
def test_a_ticket_that_was_changed_is_refused(at: int) -> None:
    changed = TICKET[:at] + bytes((TICKET[at] ^ 1,)) + TICKET[at + 1 :]
    assert "key" in refusal(tickets(), changed)


@pytest.mark.parametrize("size", range(len(TICKET)))
def test_a_ticket_that_was_cut_off_is_refused(size: int) -> None:
    assert "key" in refusal(tickets(), TICKET[:size])


def test_a_ticket_counts_at_its_site_only() -> None:
    assert "site 'b'" in refusal(tickets(node="c"), TICKET)


def test_a_ticket_of_another_cluster_is_refused() -> None:
    assert "key" in refusal(tickets(b"another key"), TICKET)


def test_a_node_without_a_key_refuses_all_tickets() -> None:
    assert "key_file" in refusal(tickets(b""), make(b"", MOVE, NOW + 5))


@pytest.mark.parametrize("pieces", [1, 2, 7, len(HEADER + CONNECT)])
def test_a_header_with_a_ticket_announces_a_move_and_what_follows_goes_on(pieces: int) -> None:
    beginning, taker, data = Beginning(), tickets(), HEADER + CONNECT
    size = -(-len(data) // pieces)
    rest: list[bytes] = []
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        if rest:
            rest.append(piece)
        elif (got := beginning.feed(piece, taker, NOW)) is not None:
            rest.append(got)
    assert b"".join(rest) == CONNECT
    assert (beginning.move, beginning.source) == (MOVE, SOURCE)


@pytest.mark.parametrize("data", [CONNECT, b"\r\n\r\nGET /", b"\x00", proxy_header.SIGNATURE[:11] + b"x"])
def test_what_begins_otherwise_goes_on_as_it_is(data: bytes) -> None:
    beginning = Beginning()
    assert beginning.feed(data, tickets(), NOW) == data
    assert beginning.move is None
    assert beginning.source is None


def test_a_header_without_a_ticket_is_refused_and_its_address_is_not_believed() -> None:
    beginning = Beginning()
    with pytest.raises(RemoteProtocolError, match="without a ticket"):
        beginning.feed(proxy_header.encode(SOURCE, ("198.51.100.2", 1883)) + CONNECT, tickets(), NOW)
    assert beginning.source is None


def test_an_address_beside_a_bad_ticket_is_not_believed() -> None:
    beginning = Beginning()
    with pytest.raises(TicketRefused):
        beginning.feed(HEADER, tickets(b"another key"), NOW)
    assert beginning.source is None
