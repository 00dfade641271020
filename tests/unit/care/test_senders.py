"""A publisher that lost its node sends again what was not acknowledged: each node knows what it acted on."""

from brokerweave.care.senders import Senders


def test_what_was_acted_on_is_known_by_client_packet_id_and_hash() -> None:
    senders = Senders()
    senders.note("c", 7, b"h")
    assert senders.seen("c", 7, b"h")
    for other in (("b", 7, b"h"), ("c", 8, b"h"), ("c", 7, b"i")):
        assert not senders.seen(*other)
    assert senders.recognised == 1


def test_it_is_known_as_often_as_it_is_resent() -> None:
    senders = Senders()
    senders.note("c", 7, b"h")
    assert senders.seen("c", 7, b"h")
    assert senders.seen("c", 7, b"h")


def test_it_is_forgotten_after_two_turns() -> None:
    senders = Senders()
    senders.note("c", 7, b"h")
    assert senders.turn()
    senders.note("c", 8, b"h")
    assert senders.seen("c", 7, b"h")
    assert senders.turn()
    assert not senders.seen("c", 7, b"h")
    assert senders.seen("c", 8, b"h")
    assert not senders.turn()


def test_one_that_comes_again_is_remembered_from_then_on() -> None:
    senders = Senders()
    senders.note("c", 7, b"h")
    senders.turn()
    senders.note("c", 7, b"h")
    senders.turn()
    assert senders.seen("c", 7, b"h")


def test_what_was_sent_first_is_known_when_it_comes_behind_what_was_resent_elsewhere() -> None:
    senders = Senders()
    senders.note("c", 7, b"h", resent_to="b")
    assert not senders.overtaken("c", 7, b"h", sent_to="b")  # a new one, under a packet id that is free again
    assert senders.overtaken("c", 7, b"h", sent_to="a")
    senders.note("c", 7, b"h")
    assert not senders.overtaken("c", 7, b"h", sent_to="a")


def test_what_was_seen_as_it_was_sent_first_is_not_waited_for() -> None:
    senders = Senders()
    senders.note("c", 7, b"h")
    senders.note("c", 7, b"h", resent_to="b")
    assert not senders.overtaken("c", 7, b"h", sent_to="a")


def test_beyond_its_capacity_the_oldest_goes_and_is_counted() -> None:
    senders = Senders(capacity=2)
    for packet_id in (1, 2, 3):
        senders.note("c", packet_id, b"h")
    assert [senders.seen("c", packet_id, b"h") for packet_id in (1, 2, 3)] == [False, True, True]
    assert senders.overflows == 1
