from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.membership import wire
from brokerweave.membership.members import Claim, MemberState
from brokerweave.membership.presets import MOST_DATAGRAM

CLAIM = Claim("site-b", 7, ("10.0.0.2", 7946), ("fe80::1%eth0", 7000), 3, b"\x00digest")
UPDATES: list[wire.Update] = [
    wire.Alive(CLAIM, 5),
    wire.Alive(Claim("c", 1, ("::1", 1)), 0),
    wire.RefutedUpdate("site-b", 7, 6),
    wire.Suspect("site-b", 6, "a"),
    wire.Dead("site-b", 6, "a"),
    wire.Gone("site-b", 6),
    wire.MetaUpdate("site-b", 7, 4, b"x" * 128),
]
BODIES: list[tuple[wire.MessageKind, wire.Body]] = [
    (wire.MessageKind.PING, wire.Ping(1, 2, 3, MemberState.SUSPECT)),
    (wire.MessageKind.ACK, 1),
    (wire.MessageKind.REQUEST, wire.Request(1, "site-b")),
    (wire.MessageKind.NACK, 0xFFFFFFFF),
    (wire.MessageKind.GOSSIP, None),
]


def encoded(kind: wire.MessageKind, body: wire.Body, updates: list[wire.Update]) -> bytes:
    return wire.encode_body(kind, body) + b"".join(map(wire.encode_update, updates))


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_what_is_said_in_a_datagram_is_what_is_read(kind: wire.MessageKind, body: wire.Body) -> None:
    assert wire.decode_datagram(kind, encoded(kind, body, UPDATES)) == (kind, body, UPDATES)


@pytest.mark.parametrize(("kind", "body"), BODIES)
@pytest.mark.parametrize("update", UPDATES)
def test_a_datagram_that_is_cut_short_anywhere_is_malformed_or_ends_before_the_update(
    kind: wire.MessageKind, body: wire.Body, update: wire.Update
) -> None:
    start, whole = len(encoded(kind, body, [])), encoded(kind, body, [update])
    for size in range(len(whole)):
        if size == start:
            assert wire.decode_datagram(kind, whole[:size]) == (kind, body, [])
        else:
            with pytest.raises(wire.MalformedMessage):
                wire.decode_datagram(kind, whole[:size])


@given(kind=st.integers(0, 255), data=st.binary(max_size=80))
def test_any_bytes_are_either_read_or_malformed(kind: int, data: bytes) -> None:
    try:
        known, body, updates = wire.decode_datagram(kind, data)
    except wire.MalformedMessage:
        return
    assert encoded(known, body, updates) == data


@pytest.mark.parametrize("name", ["", "..", "a/b", "a" * 65, "ä"])
def test_an_id_that_could_not_name_a_folder_is_malformed(name: str) -> None:
    data = wire.encode_update(wire.Gone("a", 1)).replace(
        b"\x01a", bytes([len(name.encode())]) + name.encode()
    )
    with pytest.raises(wire.MalformedMessage):
        wire.decode_datagram(wire.MessageKind.GOSSIP, data)


def test_more_metadata_than_is_allowed_is_malformed() -> None:
    with pytest.raises(wire.MalformedMessage):
        wire.decode_datagram(
            wire.MessageKind.GOSSIP, wire.encode_update(wire.MetaUpdate("a", 1, 1, b"x" * 129))
        )


def test_the_longest_claim_fits_into_a_datagram_twice_over() -> None:
    longest = Claim("i" * 64, 1 << 63, ("h" * 255, 65535), ("h" * 255, 65535), 1 << 31, b"m" * 128)
    assert 1.5 * len(wire.encode_update(wire.Alive(longest, 1 << 31))) < MOST_DATAGRAM


def test_a_table_is_read_as_it_was_written_and_not_if_it_is_cut() -> None:
    entries = [
        wire.TableEntry(MemberState.LEFT, 9, CLAIM),
        wire.TableEntry(MemberState.ALIVE, 0, Claim("c", 1, ("::1", 1))),
    ]
    data = wire.encode_table(entries)
    assert wire.decode_table(data) == entries
    with pytest.raises(wire.MalformedMessage):
        wire.decode_table(data[:-1])
