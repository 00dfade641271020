"""A publisher that lost its node sends again what was not acknowledged: each node knows what it acted on."""

from brokerweave.failover.senders import Senders


def test_what_was_acted_on_is_known_by_client_packet_id_and_hash() -> None:
    senders = Senders(60)
    senders.note("c", 7, b"h", now=0)
    assert senders.seen("c", 7, b"h", now=1)
    for other in (("b", 7, b"h"), ("c", 8, b"h"), ("c", 7, b"i")):
        assert not senders.seen(*other, now=1)
    assert senders.recognised == 1


def test_it_is_known_as_often_as_it_is_resent() -> None:
    senders = Senders(60)
    senders.note("c", 7, b"h", now=0)
    assert senders.seen("c", 7, b"h", now=1)
    assert senders.seen("c", 7, b"h", now=2)


def test_it_is_forgotten_after_the_window() -> None:
    senders = Senders(60)
    senders.note("c", 7, b"h", now=0)
    senders.note("c", 8, b"h", now=30)
    assert not senders.seen("c", 7, b"h", now=60)
    assert senders.seen("c", 8, b"h", now=60)
    assert len(senders) == 1


def test_one_that_comes_again_is_remembered_from_then_on() -> None:
    senders = Senders(60)
    senders.note("c", 7, b"h", now=0)
    senders.note("c", 8, b"h", now=1)
    senders.note("c", 7, b"h", now=50)
    assert senders.seen("c", 7, b"h", now=70)


def test_beyond_its_capacity_the_oldest_goes_and_is_counted() -> None:
    senders = Senders(60, capacity=2)
    for packet_id in (1, 2, 3):
        senders.note("c", packet_id, b"h", now=0)
    assert [senders.seen("c", packet_id, b"h", now=0) for packet_id in (1, 2, 3)] == [False, True, True]
    assert senders.overflows == 1
