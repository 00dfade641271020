"""What nodes of a mesh tell each other reads back as it was written, or is refused."""

from __future__ import annotations

import pytest

from brokerweave.cooperation import adverts
from brokerweave.cooperation.adverts import Advert, Digest, Heard, Message, Pull, Told
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.packets import PingReq, Publish
from brokerweave.plugin import Cut


@pytest.mark.parametrize(
    "message",
    [
        Advert(adverts.CHANGE, 1, 2, 3, (Told("c", 4, {"t/#": 1, "u": None}), Told("d", 0, None))),
        Advert(adverts.WHOLE, 1, 2, 0, ()),
        Heard(7, Cut(1, (2, 3), (4, 5))),
        Digest(7, 2**64 - 1),
        Pull(),
    ],
)
def test_a_message_reads_back_equal(message: Message) -> None:
    assert adverts.decode(adverts.encode(message)) == message


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b'["change"]',
        b'["no",1,2,3,[]]',
        b'["change",1,2,3,[["",1,{}]]]',
        b'["change",1,2,3,[["c",1,{"t":3}]]]',
        b'["change",1,2,3,[["c"]]]',
        b'["heard",1,2,["x"],[]]',
        b"\xff",
    ],
)
def test_anything_else_is_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        adverts.decode(Publish(adverts.TOPIC, payload))


def test_another_kind_of_packet_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        adverts.decode(PingReq())


def test_a_large_table_goes_in_parts_and_nothing_of_it_is_missing() -> None:
    told = [Told(f"c{n}", n, {f"{'x' * 500}/{n}/{m}": 1 for m in range(300)}) for n in range(3)]
    parts = list(adverts.whole(1, 2, 3, told))
    assert [part.part for part in parts] == ["begin", *["more"] * (len(parts) - 2), "end"]
    assert all(len(adverts.encode(part).payload) < 2 * adverts.PACKET_BYTES for part in parts)
    seen: dict[str, dict[str, int | None]] = {}
    for part in parts:
        for each in part.clients:
            seen.setdefault(each.client, {}).update(each.filters or {})
    assert seen == {each.client: each.filters for each in told}


def test_each_packet_of_a_change_is_a_version_and_only_the_last_has_a_digest() -> None:
    told = [Told(f"c{n}", n, {f"{'x' * 40_000}/{n}": 1}) for n in range(3)]
    packets = adverts.changes(1, 10, 99, told)
    assert [packet.version for packet in packets] == [11, 12, 13]
    assert [packet.digest for packet in packets] == [adverts.UNKNOWN, adverts.UNKNOWN, 99]
