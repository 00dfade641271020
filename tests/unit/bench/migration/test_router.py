"""The delaying relay: what goes in comes out later, in order, at the right region."""

from __future__ import annotations

from brokerweave.bench.migration import router
from brokerweave.bench.migration.router import RegionWay, region_of


def packet(*destination: int) -> bytes:
    return b"\x45" + bytes(15) + bytes(destination) + b"rest"


def test_a_packet_goes_to_the_region_of_its_destination() -> None:
    assert region_of(packet(10, 213, 2, 1), 3) == 1
    assert region_of(packet(10, 213, 4, 1), 3) is None
    assert region_of(packet(10, 99, 1, 1), 3) is None
    assert region_of(b"\x60" + bytes(40), 3) is None
    assert region_of(b"\x45", 3) is None


def test_packets_come_out_after_the_delay_and_in_their_order() -> None:
    way = RegionWay(0.04)
    way.take(b"a", 1.0)
    way.take(b"b", 1.01)
    assert way.give(1.039) == []
    assert way.due == 1.04
    assert way.give(1.045) == [b"a"]
    assert way.give(1.06) == [b"b"]
    assert (way.due, way.passed, way.dropped) == (float("inf"), 2, 0)


def test_what_is_too_much_is_dropped_and_counted() -> None:
    way = RegionWay(1.0)
    for number in range(router.MOST_WAITING + 2):
        way.take(b"%d" % number, 0.0)
    assert way.dropped == 2
    assert len(way.give(1.0)) == router.MOST_WAITING
