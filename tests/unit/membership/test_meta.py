"""What a member tells of itself, in few bytes, and what is made of bytes that nobody wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.membership.meta import Meta
from brokerweave.membership.presets import MOST_META

HOSTS = st.sampled_from(["127.0.0.1", "::1", "fe80::1:2", "node-a.example", "0.0.0.0"])
ADDRESSES = st.none() | st.tuples(HOSTS, st.integers(1, 65_535))


@given(ADDRESSES, ADDRESSES, ADDRESSES, st.binary(max_size=40), st.booleans(), st.booleans())
def test_what_was_said_is_heard(
    clients: tuple[str, int] | None,
    health: tuple[str, int] | None,
    monitor: tuple[str, int] | None,
    table: bytes,
    observer: bool,
    stops: bool,
) -> None:
    meta = Meta(clients, health, table, monitor, observer, stops)
    assert Meta.decode(meta.encode()) == meta
    assert len(meta.encode()) <= MOST_META


def test_a_shared_host_is_written_once() -> None:
    assert Meta(("10.0.0.1", 1883), ("10.0.0.1", 8080)).encode().count(b"10.0.0.1") == 1


def test_a_field_of_a_newer_member_is_skipped() -> None:
    meta = Meta(("a", 1), None, b"digest")
    assert Meta.decode(b"\x63\x02hi" + meta.encode()) == meta


@given(st.binary(max_size=MOST_META))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    found = Meta.decode(data)
    for address in (found.clients, found.health, found.monitor):
        assert address is None or (address[0] and 0 < address[1] < 65_536)


@pytest.mark.parametrize(
    "text", [b"a", b":", b"a:", b"a:0", b"a:65536", b"a:-1", "a:\u0661".encode(), b":80"]
)
def test_what_is_no_address_is_none(text: bytes) -> None:
    assert Meta.decode(bytes((1, len(text))) + text).clients is None
