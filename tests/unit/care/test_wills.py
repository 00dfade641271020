"""Wills of a dead node's clients: published by one who holds for it, once."""

from brokerweave.care.wills import PendingWill, PendingWills
from brokerweave.mqtt.packets import Will
from brokerweave.mqtt.properties import Property


def pending(
    client: str = "c", node: str = "d", since: int = 1, delay: int = 0, expiry: int = 60
) -> PendingWill:
    properties = ((Property.WILL_DELAY_INTERVAL, delay),) if delay else ()
    return PendingWill(client, node, since, 5, Will("w", b"gone", 1, False, properties), expiry)


def told(*wills: PendingWill, room: int = 1 << 20) -> PendingWills:
    table = PendingWills(room)
    for one in wills:
        table.told(one)
    return table


def test_a_dead_nodes_wills_are_due_once() -> None:
    wills = told(pending("a"), pending("b"), pending("c", node="x"))
    assert wills.due("d", now=0) == []
    wills.dead("d", now=0)
    assert wills.due("d", now=0) == [pending("a"), pending("b")]
    wills.dead("d", now=0)
    assert wills.due("d", now=0) == []
    assert len(wills) == 1


def test_a_will_that_was_cleared_is_not_due() -> None:
    wills = told(pending("a"), pending("b"))
    wills.cleared("a", 1)
    wills.dead("d", now=0)
    wills.cleared("b", 1)  # another holder published it
    assert wills.due("d", now=0) == []
    assert wills.next_due() is None


def test_what_is_cleared_of_an_earlier_time_leaves_a_later_will() -> None:
    wills = told(pending(since=5))
    wills.cleared("c", 4)
    wills.told(pending(since=3))
    assert wills.of("d") == [pending(since=5)]


def test_a_client_that_came_to_another_node_is_not_the_dead_nodes_any_more() -> None:
    wills = told(pending(since=1), pending(node="e", since=2))
    wills.dead("d", now=0)
    assert wills.due("d", now=0) == []
    assert wills.of("e") == [pending(node="e", since=2)]


def test_a_will_with_a_delay_waits_for_it_but_not_longer_than_its_session() -> None:
    wills = told(pending("a", delay=10), pending("b", delay=10, expiry=3))
    wills.dead("d", now=100)
    assert wills.next_due() == 103
    assert wills.due("d", now=103) == [pending("b", delay=10, expiry=3)]
    wills.dead("d", now=109)
    assert wills.due("d", now=110) == [pending("a", delay=10)]


def test_a_client_that_is_back_before_its_will_is_due_cancels_it() -> None:
    wills = told(pending(delay=10))
    wills.dead("d", now=0)
    wills.cleared("c", 2)
    assert wills.due("d", now=10) == []


def test_of_a_node_that_was_not_dead_nothing_is_due() -> None:
    wills = told(pending(delay=10))
    wills.dead("d", now=0)
    wills.alive("d")
    assert wills.due("d", now=10) == []
    wills.dead("d", now=20)
    assert wills.due("d", now=30) == [pending(delay=10)]


def test_what_there_is_no_room_for_is_counted() -> None:
    wills = told(pending("a"), pending("b"), room=pending().size)
    assert wills.dropped == 1
    wills.cleared("a", 1)
    wills.told(pending("b"))
    assert wills.of("d") == [pending("b")]
