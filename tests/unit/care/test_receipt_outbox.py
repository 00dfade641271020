"""Receipts are gathered for a turn, and one packet goes to each holder."""

from brokerweave.care.ids import MessageId
from brokerweave.care.receipt_outbox import EVERYBODY, ReceiptOutbox, ReceiptsTaken
from brokerweave.care.wire import GOT, RECEIPTS, decode_got, decode_number, decode_receipts

ONE, TWO = b"11111111", b"22222222"
ID = MessageId("p", 1, 0, 1)


def said(payload: bytes) -> bytes:
    """What follows the number."""
    return decode_number(payload)[2]


def test_who_is_reached_later_hears_which_ids_clients_got_while_the_node_was_warming_up() -> None:
    outbox = ReceiptOutbox()
    outbox.received("c", [ONE])
    outbox.got("c", [ID], [EVERYBODY])
    outbox.flush(["x"], {"x"}, warming_up=True)
    ((_, topic, payload),) = outbox.back("y")
    assert (topic, decode_got(said(payload))) == (GOT, [("c", [ID])])
    outbox.received("c", [TWO])
    out = outbox.flush(["x", "y"], {"x", "y"})
    assert [decode_receipts(said(payload)) for _, _, payload in out] == [[("c", [TWO])]] * 2
    assert outbox.back("z") == []


def test_each_holder_gets_one_packet_for_all_clients() -> None:
    outbox = ReceiptOutbox()
    outbox.received("c", [ONE])
    outbox.received("b", [TWO])
    outbox.received("c", [ONE])
    out = outbox.flush(["x", "y"], {"x", "y"})
    assert [(node, topic) for node, topic, _ in out] == [("x", RECEIPTS), ("y", RECEIPTS)]
    assert decode_receipts(said(out[0][2])) == [("c", [ONE, ONE]), ("b", [TWO])]
    assert outbox.flush(["x", "y"], {"x", "y"}) == []


def test_ids_go_to_the_nodes_that_had_them() -> None:
    outbox = ReceiptOutbox()
    outbox.got("c", [ID], ["y", "z"])
    out = outbox.flush(["x"], {"x", "y", "z"})
    assert [(node, topic, decode_got(said(payload))) for node, topic, payload in out] == [
        ("y", GOT, [("c", [ID])]),
        ("z", GOT, [("c", [ID])]),
    ]


def test_a_holder_that_cannot_be_reached_is_told_later() -> None:
    outbox = ReceiptOutbox()
    outbox.received("c", [ONE])
    assert [node for node, _, _ in outbox.flush(["x", "y"], {"y"})] == ["y"]
    ((node, topic, payload),) = outbox.back("x")
    assert (node, topic, decode_receipts(said(payload))) == ("x", RECEIPTS, [("c", [ONE])])
    outbox.acknowledged("x", 0, 1)
    assert outbox.back("x") == []


def test_what_went_out_goes_again_over_a_new_link_until_it_is_acknowledged() -> None:
    outbox = ReceiptOutbox(life=7)
    for _ in range(3):
        outbox.received("c", [ONE])
        outbox.flush(["x"], {"x"})
    outbox.acknowledged("x", 6, 3)  # of an earlier life
    outbox.acknowledged("x", 7, 2)
    assert [decode_number(payload)[:2] for _, _, payload in outbox.back("x")] == [(7, 3)]
    assert outbox.has_unacknowledged("x")
    outbox.acknowledged("x", 7, 3)
    assert not outbox.has_unacknowledged("x")


def test_a_holder_takes_nothing_twice_but_of_another_life() -> None:
    taken = ReceiptsTaken()
    assert [taken.accept("h", life, number) for life, number in ((1, 1), (1, 3), (1, 2), (1, 3), (2, 1))] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert taken.of("h") == (2, 1)


def test_what_is_kept_for_a_holder_that_cannot_be_reached_is_bounded() -> None:
    outbox = ReceiptOutbox(max_bytes=1000)
    for _ in range(20):
        outbox.received("c", [ONE])
        outbox.flush(["x"], ())
    kept = len(outbox.back("x"))
    assert 0 < kept < 10
    assert outbox.lost == 20 - kept


def test_nothing_is_kept_for_a_dead_holder() -> None:
    outbox = ReceiptOutbox()
    outbox.received("c", [ONE])
    outbox.flush(["x"], ())
    outbox.gone("x")
    assert (outbox.back("x"), outbox.lost) == ([], 1)
