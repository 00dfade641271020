"""Who holds for a node's clients changes: what is kept for them has its copies again."""

from __future__ import annotations

import pytest

from brokerweave.care import wire
from brokerweave.care.client_care import STALE_SECONDS
from brokerweave.care.held import hold
from brokerweave.care.ids import MessageId
from brokerweave.care.queues import UNDER_WAY_SECONDS
from brokerweave.cooperation.mesh import Mesh
from brokerweave.mqtt.packets import Publish
from tests.unit.care.mesh_sites import (
    DEAD_SECONDS,
    OPTIONS,
    Guest,
    care,
    injected,
    kill,
    mesh_of,
    strategy,
)
from tests.unit.node.network import Network


def start(mesh: Network, name: str, others: str, copies: int = 2) -> None:
    """A site is there that was not, with an empty disk."""
    options = {**OPTIONS, "copies": copies}
    mesh.add(name, options=options, cluster_timeout=5.0, barrier_timeout=1.0, strategy=Mesh)
    for other in others:
        mesh.link(name, other)
    mesh.settle()
    mesh.advance(1.0)


def pending_at(mesh: Network, name: str, client: str = "c") -> list[bytes]:
    return [held.publish.payload for held in care(mesh, name).queues.take(client)]


def undelivered(names: str, copies: int) -> tuple[Network, Guest]:
    """A client of d is owed a message that its broker has."""
    mesh = mesh_of(names, copies)
    client = Guest(mesh, "d", "c")
    client.subscribe("t")
    mesh.settle()
    mesh.advance(0.1)
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    return mesh, client


def test_a_node_that_comes_to_hold_for_another_gets_what_is_kept_for_its_clients() -> None:
    mesh, _ = undelivered("dp", copies=3)
    start(mesh, "n", "dp", copies=3)
    assert pending_at(mesh, "n") == [b"1"]


def test_all_who_kept_a_message_may_die_once_others_have_it() -> None:
    mesh, _ = undelivered("dp", copies=3)
    start(mesh, "n", "dp", copies=3)
    start(mesh, "m", "dpn", copies=3)
    kill(mesh, "d")
    kill(mesh, "p")
    mesh.advance(DEAD_SECONDS)
    back = Guest(mesh, "m", "c")
    back.subscribe("t")
    mesh.settle()
    assert back.payloads() == [b"1"]


def test_a_new_holder_hears_what_the_client_got_since() -> None:
    mesh, client = undelivered("dp", copies=3)
    start(mesh, "n", "dp", copies=3)
    client.delivered(b"1", 1)
    mesh.settle()
    assert pending_at(mesh, "n") == pending_at(mesh, "p") == []


def test_a_receipt_that_overtakes_what_is_handed_over_is_not_forgotten() -> None:
    mesh, client = undelivered("dp", copies=3)
    mesh.add("n", options={**OPTIONS, "copies": 3}, strategy=Mesh, cluster_timeout=5.0, barrier_timeout=1.0)
    mesh.link("n", "d")
    mesh.link("n", "p")
    mesh.stuck.add(("p", "n"))
    mesh.settle()
    client.delivered(b"1", 1)
    mesh.settle()
    mesh.stuck.clear()
    mesh.settle()
    mesh.advance(1.0)
    assert pending_at(mesh, "n") == pending_at(mesh, "p") == []


def test_who_others_knew_for_a_holder_before_hears_what_clients_got_meanwhile() -> None:
    mesh, client = undelivered("dp", copies=3)
    client.delivered(b"1", 1)
    mesh.settle()
    mesh.add("n", options={**OPTIONS, "copies": 3}, strategy=Mesh, cluster_timeout=5.0, barrier_timeout=1.0)
    mesh.link("n", "p")
    mesh.settle()
    mesh.stuck.add(("p", "n"))
    another = Guest(mesh, "p", "another")
    another.publish("t", b"2")
    mesh.settle()
    client.delivered(b"2", 2)
    mesh.advance(0.1)
    mesh.link("n", "d")
    mesh.settle()
    mesh.stuck.clear()
    mesh.settle()
    assert not care(mesh, "n").queues.has_pending("c")
    mesh.advance(UNDER_WAY_SECONDS + 0.1)
    another.publish("t", b"2")  # the same once more, which the client has not got yet
    mesh.settle()
    assert care(mesh, "n").queues.has_pending("c")


def test_what_is_kept_for_clients_of_a_dead_node_is_handed_over_as_well() -> None:
    mesh, _ = undelivered("dp", copies=3)
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    start(mesh, "n", "p", copies=3)
    assert "n" in strategy(mesh, "p").holders("d")
    kill(mesh, "p")
    mesh.advance(DEAD_SECONDS)
    back = Guest(mesh, "n", "c")
    back.subscribe("t")
    mesh.settle()
    assert back.payloads() == [b"1"]


@pytest.mark.parametrize(
    ("dead", "age", "kept"),
    [
        (True, STALE_SECONDS + 1, False),
        (True, STALE_SECONDS - 1, True),
        (False, STALE_SECONDS + 1, True),  # its node asked for it, and has told its giver what clients have
    ],
)
def test_what_is_given_for_a_node_that_is_taken_for_dead_and_lives_is_kept_only_while_receipts_may_come(
    dead: bool, age: float, kept: bool
) -> None:
    mesh = mesh_of("dpn")
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    mesh.advance(2 * STALE_SECONDS)
    late = hold(MessageId("x", 1, 0, 1), Publish("t", b"1", 1), 4, mesh.time - age)
    (page,) = wire.encode_handed("d", "c", dead, [(1, late)], mesh.time)
    care(mesh, "n").take_over(wire.decode_handed(page, mesh.time), 0.0)
    assert care(mesh, "n").queues.is_pending("c", late.id) == kept


def test_what_a_client_got_where_it_came_back_is_not_handed_over() -> None:
    mesh, _ = undelivered("dpe", copies=2)
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    back = Guest(mesh, "e", "c")
    back.subscribe("t")
    mesh.settle()
    back.answer_all()
    start(mesh, "n", "pe")
    mesh.settle()
    assert pending_at(mesh, "n") == []


def test_a_holder_that_is_told_to_give_to_nobody_it_knows_gives_nothing() -> None:
    mesh, _ = undelivered("dp", copies=3)
    mesh.nodes["p"].core.controls[wire.HAND]("d", wire.encode_holder("stranger"))
    mesh.advance(1.0)
    assert mesh.nodes["p"].core.counters["queues_handed_over"] == 0


def test_a_node_that_was_started_keeps_what_clients_are_owed_that_it_had_before() -> None:
    """Else they would have one copy less than others until they come back."""
    mesh, _ = undelivered("dp", copies=2)
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    start(mesh, "d", "p")
    Guest(mesh, "p", "another").publish("t", b"2")
    mesh.settle()
    Guest(mesh, "d", "third").publish("t", b"3")
    mesh.settle()
    kill(mesh, "p")
    mesh.advance(DEAD_SECONDS)
    back = Guest(mesh, "d", "c")
    back.subscribe("t")
    mesh.settle()
    still_for_the_broker = injected(mesh, "d")
    assert sorted(back.payloads() + still_for_the_broker) == [b"1", b"2", b"3"]
    assert b"1" in back.payloads()


def test_what_is_kept_for_a_client_that_is_elsewhere_is_passed_on_by_its_old_site() -> None:
    """p cannot reach e, where the client is, and takes it for nowhere; d, which began anew, has heard e."""
    mesh = mesh_of("dpe", copies=3)
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    mesh.cut("e", "p")
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    back = Guest(mesh, "e", "c")
    back.subscribe("t")
    mesh.settle()
    publisher = Guest(mesh, "p", "publisher")
    publisher.publish("t", b"1")
    mesh.settle()
    start(mesh, "d", "ep", copies=3)
    assert back.payloads() == [b"1"]
    back.answer_all()
    publisher.publish("t", b"2")
    mesh.settle()
    assert back.payloads() == [b"1", b"2"]


def test_what_has_gone_on_is_not_kept_because_a_holder_says_late_that_it_could_not() -> None:
    mesh = mesh_of("dp")
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    mesh.cut("d", "p")
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    (kept,) = care(mesh, "p").queues.take("c")
    care(mesh, "p").queues.let_go("c", (kept.id,))
    (late,) = wire.encode_got({"d": [kept.id]})
    mesh.nodes["p"].core.controls[wire.UNHELD]("d", late)
    mesh.advance(1.0)
    assert not care(mesh, "p").queues.has_pending("c")


def test_what_is_not_done_yet_is_shown() -> None:
    mesh, _ = undelivered("dp", copies=3)
    assert [care(mesh, name).handover.pending for name in "dp"] == [0, 0]
    mesh.add("n", options={**OPTIONS, "copies": 3}, strategy=Mesh, cluster_timeout=5.0, barrier_timeout=1.0)
    mesh.link("n", "d")
    mesh.link("n", "p")
    assert care(mesh, "d").handover.pending
    mesh.stuck.add(("p", "d"))
    mesh.settle()
    mesh.advance(1.0)
    assert care(mesh, "d").handover.pending
    mesh.stuck.clear()
    mesh.settle()
    mesh.advance(1.0)
    assert [care(mesh, name).handover.pending for name in "dpn"] == [0, 0, 0]


def held_by_one_who_knows_nobody() -> tuple[Network, Guest]:
    """A client of d is to get what p published, and a, just started, was to keep it for d's clients."""
    mesh = mesh_of("dpe")
    client = Guest(mesh, "d", "c")
    client.subscribe("t")
    mesh.settle()
    mesh.advance(OPTIONS["window"] + 1.0)
    assert care(mesh, "d").receipts.holders() == ["e"]
    start(mesh, "a", "p")
    assert strategy(mesh, "p").holders("d") == ("a",)
    mesh.stuck.add(("a", "p"))
    publisher = Guest(mesh, "p", "publisher")
    publisher.publish("t", b"1")
    mesh.settle()
    assert publisher.acknowledged() == []
    return mesh, client


def test_what_a_holder_could_not_keep_outlives_the_site_that_had_it() -> None:
    mesh, _ = held_by_one_who_knows_nobody()
    mesh.stuck.clear()
    mesh.settle()
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    back = Guest(mesh, "e", "c")
    back.subscribe("t")
    mesh.settle()
    assert back.payloads() == [b"1"]


def test_who_keeps_what_a_holder_could_not_hears_that_its_client_has_it() -> None:
    mesh, client = held_by_one_who_knows_nobody()
    mesh.stuck.clear()
    mesh.settle()
    assert care(mesh, "p").queues.has_pending("c")
    client.delivered(b"1", 1)
    mesh.settle()
    assert not care(mesh, "p").queues.has_pending("c")


def test_who_keeps_what_a_holder_could_not_hears_that_its_client_had_it_before() -> None:
    mesh, client = held_by_one_who_knows_nobody()
    client.delivered(b"1", 1)
    mesh.settle()
    mesh.stuck.clear()
    mesh.settle()
    assert not care(mesh, "p").queues.has_pending("c")
