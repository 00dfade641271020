"""Receipts are gathered for a turn, and one packet goes to each holder."""

from brokerweave.failover.ids import MessageId
from brokerweave.failover.receipts import EVERYBODY, Receipts, Taken
from brokerweave.failover.wire import GOT, RECEIPTS, decode_got, decode_number, decode_receipts

ONE, TWO = b"11111111", b"22222222"
ID = MessageId("p", 1, 0, 1)


def said(payload: bytes) -> bytes:
    """What follows the number."""
    return decode_number(payload)[2]


def test_who_is_reached_later_hears_which_ids_clients_got_while_the_node_was_young() -> None:
    receipts = Receipts()
    receipts.received("c", [ONE])
    receipts.got("c", [ID], [EVERYBODY])
    receipts.flush(["x"], {"x"}, young=True)
    ((_, topic, payload),) = receipts.back("y")
    assert (topic, decode_got(said(payload))) == (GOT, [("c", [ID])])
    receipts.received("c", [TWO])
    out = receipts.flush(["x", "y"], {"x", "y"})
    assert [decode_receipts(said(payload)) for _, _, payload in out] == [[("c", [TWO])]] * 2
    assert receipts.back("z") == []


def test_each_holder_gets_one_packet_for_all_clients() -> None:
    receipts = Receipts()
    receipts.received("c", [ONE])
    receipts.received("b", [TWO])
    receipts.received("c", [ONE])
    out = receipts.flush(["x", "y"], {"x", "y"})
    assert [(node, topic) for node, topic, _ in out] == [("x", RECEIPTS), ("y", RECEIPTS)]
    assert decode_receipts(said(out[0][2])) == [("c", [ONE, ONE]), ("b", [TWO])]
    assert receipts.flush(["x", "y"], {"x", "y"}) == []


def test_ids_go_to_the_nodes_that_had_them() -> None:
    receipts = Receipts()
    receipts.got("c", [ID], ["y", "z"])
    out = receipts.flush(["x"], {"x", "y", "z"})
    assert [(node, topic, decode_got(said(payload))) for node, topic, payload in out] == [
        ("y", GOT, [("c", [ID])]),
        ("z", GOT, [("c", [ID])]),
    ]


def test_a_holder_that_cannot_be_reached_is_told_later() -> None:
    receipts = Receipts()
    receipts.received("c", [ONE])
    assert [node for node, _, _ in receipts.flush(["x", "y"], {"y"})] == ["y"]
    ((node, topic, payload),) = receipts.back("x")
    assert (node, topic, decode_receipts(said(payload))) == ("x", RECEIPTS, [("c", [ONE])])
    receipts.acknowledged("x", 0, 1)
    assert receipts.back("x") == []


def test_what_went_out_goes_again_over_a_new_link_until_it_is_acknowledged() -> None:
    receipts = Receipts(life=7)
    for _ in range(3):
        receipts.received("c", [ONE])
        receipts.flush(["x"], {"x"})
    receipts.acknowledged("x", 6, 3)  # of an earlier life
    receipts.acknowledged("x", 7, 2)
    assert [decode_number(payload)[:2] for _, _, payload in receipts.back("x")] == [(7, 3)]
    assert receipts.owes("x")
    receipts.acknowledged("x", 7, 3)
    assert not receipts.owes("x")


def test_a_holder_takes_nothing_twice_but_of_another_life() -> None:
    taken = Taken()
    assert [taken.accept("h", life, number) for life, number in ((1, 1), (1, 3), (1, 2), (1, 3), (2, 1))] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert taken.of("h") == (2, 1)


def test_what_is_kept_for_a_holder_that_cannot_be_reached_is_bounded() -> None:
    receipts = Receipts(owed_bytes=1000)
    for _ in range(20):
        receipts.received("c", [ONE])
        receipts.flush(["x"], ())
    kept = len(receipts.back("x"))
    assert 0 < kept < 10
    assert receipts.lost == 20 - kept


def test_nothing_is_kept_for_a_dead_holder() -> None:
    receipts = Receipts()
    receipts.received("c", [ONE])
    receipts.flush(["x"], ())
    receipts.gone("x")
    assert (receipts.back("x"), receipts.lost) == ([], 1)
