from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import LocalProtocolError
from brokerweave.placement.table_one import (
    NOWHERE,
    PingRequest,
    PingResponse,
    QosRequest,
    QosResponse,
    Reconnect,
    Reconnected,
    TableOne,
    decode,
    encode,
)

SITE = ("10.1.2.3", 1883)
UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    ("packet", "size"),
    [
        (QosRequest(1, SITE), 13),
        (QosResponse(1, 0.0123), 9),
        (QosResponse(2, inf), 9),
        (PingRequest(0xFFFFFFFF), 5),
        (PingResponse(0), 5),
        (Reconnect(7, UUID, SITE), 47),
        (Reconnected(7, "g1", NOWHERE), 47),
    ],
)
def test_each_packet_has_the_papers_size_and_comes_back_as_it_was(packet: TableOne, size: int) -> None:
    data = encode(packet)
    assert len(data) == size
    assert decode(data) == packet
    assert decode(data[:-1]) is None
    assert decode(data + b"\0") is None


@given(st.binary(max_size=60))
def test_whatever_is_read_is_written_in_the_same_size(data: bytes) -> None:
    packet = decode(data)
    assert packet is None or len(encode(packet)) == len(data)


def test_what_table_one_has_no_room_for_is_said() -> None:
    with pytest.raises(LocalProtocolError, match="no IPv4 address"):
        encode(QosRequest(1, ("::1", 1883)))
    with pytest.raises(LocalProtocolError, match="36 bytes"):
        encode(Reconnect(1, "g" * 37, SITE))
