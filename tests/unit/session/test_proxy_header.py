"""The bytes of HAProxy's specification, section 2.2."""

from __future__ import annotations

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.session.proxy_header import LOCAL, Header, decode, encode, own

SIGNATURE = bytes.fromhex("0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A")


def test_an_ipv4_client_is_twelve_bytes_of_addresses() -> None:
    header = encode(("192.0.2.1", 49152), ("198.51.100.2", 1883))
    assert header == SIGNATURE + bytes.fromhex("21 11 000C C0000201 C6336402 C000 075B")


@pytest.mark.parametrize("host", ["2001:db8::1", "2001:db8::1%eth0"])
def test_an_ipv6_client_is_thirty_six_bytes_of_addresses(host: str) -> None:
    header = encode((host, 1, 0, 0), ("2001:db8::2", 65535, 0, 0))
    addresses = "20010DB8000000000000000000000001 20010DB8000000000000000000000002"
    assert header == SIGNATURE + bytes.fromhex(f"21 21 0024 {addresses} 0001 FFFF")


def test_an_ipv4_client_of_a_listener_for_both_is_an_ipv4_client() -> None:
    mapped = encode(("::ffff:192.0.2.1", 1, 0, 0), ("::ffff:198.51.100.2", 2, 0, 0))
    assert mapped == encode(("192.0.2.1", 1), ("198.51.100.2", 2))


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("", "/run/node.sock"),
        (None, None),
        (("192.0.2.1", 1), ("2001:db8::2", 1)),
        (("a.name", 1), ("192.0.2.1", 1)),
        ((), ()),
    ],
)
def test_what_has_no_ip_addresses_leaves_the_connection_as_it_is(source: object, destination: object) -> None:
    assert encode(source, destination) == LOCAL == SIGNATURE + bytes.fromhex("20 00 0000")


def test_a_connection_of_the_nodes_own_names_its_own_ends() -> None:
    ends = {"sockname": ("127.0.0.1", 50000), "peername": ("127.0.0.1", 1884)}
    assert own(ends.get) == encode(ends["sockname"], ends["peername"])


TLVS = ((0xE0, b"ticket"), (0x05, b""))


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (("192.0.2.1", 49152), ("198.51.100.2", 1883)),
        (("2001:db8::1", 49152), ("2001:db8::2", 1883)),
        (None, None),
    ],
)
def test_a_header_reads_back_equal_and_an_incomplete_one_waits(source: object, destination: object) -> None:
    header = encode(source, destination, *TLVS)
    for size in range(len(header)):
        assert decode(header[:size]) is None
    found = Header(len(header), source if isinstance(source, tuple) else None, TLVS)
    assert decode(header) == decode(header + b"what follows") == found
    assert (found.tlv(0xE0), found.tlv(0xE1)) == (b"ticket", None)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        SIGNATURE + bytes.fromhex("11 11 000C C0000201 C6336402 C000 075B"),
        SIGNATURE + bytes.fromhex("21 11 0008 C0000201 C6336402"),
        SIGNATURE + bytes.fromhex("21 11 FFFF"),
        SIGNATURE + bytes.fromhex("20 00 0004 E0 0002 00"),
        SIGNATURE + bytes.fromhex("20 00 0002 E0 00"),
    ],
)
def test_what_is_no_sound_header_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(header)
