"""A client comes back, and something comes between: it is owed what it misses all the same."""

from __future__ import annotations

import pytest

from brokerweave.care import returning
from brokerweave.care.client_care import LEFT_SECONDS, PUSH_SECONDS, TICK_SECONDS
from brokerweave.care.held import hold
from brokerweave.care.ids import MessageId
from brokerweave.cooperation.mesh import Mesh
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.journal import MemoryJournal
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Disconnect, PubAck, Publish, PubRec, SubAck, Subscribe, Subscription
from brokerweave.mqtt.properties import Property
from brokerweave.node import sessions, state
from brokerweave.node.arrivals import ACK_DELAY
from brokerweave.node.recovery import Recovery
from brokerweave.node.write_ahead_log import WriteAheadLog
from brokerweave.session.record import record_of, state_of
from tests.unit.care.mesh_sites import (
    DEAD_SECONDS,
    OPTIONS,
    Guest,
    Membership,
    care,
    injected,
    kill,
    mesh_of,
    strategy,
)
from tests.unit.node.network import Network


@pytest.fixture
def mesh() -> Network:
    return mesh_of("deph")


def missed(mesh: Network, *payloads: bytes) -> None:
    """A client of d, whose site dies, is owed these."""
    Guest(mesh, "d", "c", clean_start=False).subscribe("t")
    mesh.settle()
    publisher = Guest(mesh, "p", "publisher")
    for payload in payloads:
        publisher.publish("t", payload)
    mesh.settle()
    kill(mesh, "d")
    mesh.settle()


def test_what_a_client_did_not_answer_before_its_connection_ended_is_given_again(mesh: Network) -> None:
    missed(mesh, b"1", b"2")
    back = Guest(mesh, "e", "c", clean_start=False)
    back.subscribe("t")
    mesh.settle()
    assert back.payloads() == [b"1", b"2"]
    back.pair.ended()
    mesh.settle()
    again = Guest(mesh, "e", "c", session_present=True, clean_start=False)
    mesh.advance(1.0)
    assert again.payloads() == [b"1", b"2"]
    again.answer_all()
    again.pair.ended()
    mesh.settle()
    once_more = Guest(mesh, "e", "c", session_present=True, clean_start=False)
    mesh.advance(1.0)
    assert once_more.payloads() == []


def test_holders_hear_what_a_client_has_before_it_gets_more(mesh: Network) -> None:
    missed(mesh, b"1", b"2")
    one_at_once = ((Property.RECEIVE_MAXIMUM, 1),)
    back = Guest(mesh, "e", "c", version=5, clean_start=False, properties=one_at_once)
    back.subscribe("t")
    mesh.settle()
    assert back.payloads() == [b"1"]
    assert not any(mesh.wires.values())
    back.answer_all()
    assert back.payloads() == [b"1", b"2"]
    assert any(mesh.wires["e", holder] for holder in "ph")  # in the same turn


def test_a_client_that_leaves_before_holders_have_answered_gets_it_when_it_goes_on(mesh: Network) -> None:
    missed(mesh, b"1")
    back = Guest(mesh, "e", "c", clean_start=False)
    mesh.stuck |= {(other, "e") for other in "ph"}
    back.subscribe("t")
    mesh.settle()
    back.pair.ended()
    mesh.stuck.clear()
    mesh.settle()
    assert back.payloads() == []
    again = Guest(mesh, "e", "c", session_present=True, clean_start=False)
    mesh.advance(1.0)
    assert again.payloads() == [b"1"]


def test_what_comes_late_for_a_client_that_is_away_it_gets_when_it_goes_on() -> None:
    mesh = mesh_of("deph")
    Guest(mesh, "d", "c", clean_start=False).subscribe("t")
    mesh.settle()
    (holder,) = strategy(mesh, "d").holders("d")
    origin, home = [name for name in "eph" if name != holder]
    for other in (holder, home):
        mesh.cut(origin, other)
    Guest(mesh, origin, "publisher").publish("t", b"1")
    mesh.settle()
    kill(mesh, "d")
    back = Guest(mesh, home, "c", clean_start=False)
    back.subscribe("t")
    mesh.advance(1.0)
    back.pair.ended()
    mesh.settle()
    mesh.link(origin, holder)
    mesh.advance(1.0)
    again = Guest(mesh, home, "c", session_present=True, clean_start=False)
    mesh.advance(1.0)
    assert again.payloads() == [b"1"]


def test_a_session_that_the_broker_lost_while_its_client_was_away_gets_what_it_missed(
    mesh: Network,
) -> None:
    client = Guest(mesh, "d", "c", clean_start=False)
    client.subscribe("t")
    mesh.settle()
    client.pair.ended()
    mesh.settle()
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    watch = mesh.nodes["d"].core.injectors[0].watch
    assert watch is not None
    watch.sent("p", 1, 1, 0)
    watch.ended("p", 1, 1, True)  # and the broker dies with it
    back = Guest(mesh, "d", "c", clean_start=False)
    back.subscribe("t")
    mesh.advance(1.0)
    assert back.payloads() == [b"1"]


def test_what_was_pending_for_a_lost_session_and_its_client_did_not_answer_is_given_again(
    mesh: Network,
) -> None:
    client = Guest(mesh, "d", "c", clean_start=False)
    client.subscribe("t")
    mesh.settle()
    client.pair.ended()
    mesh.settle()
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    watch = mesh.nodes["d"].core.injectors[0].watch
    assert watch is not None
    watch.sent("p", 1, 1, 0)
    watch.ended("p", 1, 1, True)
    back = Guest(mesh, "d", "c", clean_start=False)
    back.subscribe("t")
    mesh.advance(1.0)
    assert back.payloads() == [b"1"]
    back.pair.ended()
    mesh.settle()
    again = Guest(mesh, "d", "c", session_present=True, clean_start=False)
    mesh.advance(1.0)
    assert again.payloads() == [b"1"]


def test_one_that_asks_for_a_new_session_gets_nothing_from_the_old_one(mesh: Network) -> None:
    client = Guest(mesh, "d", "c", clean_start=False)
    client.subscribe("t")
    mesh.settle()
    client.pair.ended()
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    watch = mesh.nodes["d"].core.injectors[0].watch
    assert watch is not None
    watch.sent("p", 1, 1, 0)
    watch.ended("p", 1, 1, True)
    back = Guest(mesh, "d", "c", clean_start=True)
    back.subscribe("t")
    mesh.advance(1.0)
    assert back.payloads() == []


@pytest.mark.parametrize("origin_away", [False, True])
def test_what_a_client_had_elsewhere_a_broker_that_gets_it_late_does_not_give_it_again(
    mesh: Network, origin_away: bool
) -> None:
    Guest(mesh, "d", "other").subscribe("t")
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    assert injected(mesh, "d") == [b"1"]  # its broker is away
    if origin_away:  # and does not hear from d that the client went, nor that it is back
        mesh.cut("d", "p")
    elsewhere = Guest(mesh, "e", "c")
    elsewhere.subscribe("t")
    mesh.settle()
    assert elsewhere.payloads() == [b"1"]
    elsewhere.answer_all()
    mesh.settle()
    back = Guest(mesh, "d", "c")
    back.subscribe("t")
    mesh.settle()
    watch = mesh.nodes["d"].core.injectors[0].watch
    assert watch is not None
    watch.sent("p", 1, 1, 0)
    back.delivered(b"1", 1)
    assert back.payloads() == []
    back.delivered(b"1", 2)  # an equal one, published since
    assert back.payloads() == [b"1"]


def test_what_a_client_missed_elsewhere_it_gets_when_it_is_back_in_a_session_that_it_had_come_to(
    mesh: Network,
) -> None:
    missed(mesh, b"1")
    first = Guest(mesh, "e", "c", clean_start=False)
    first.subscribe("t")
    mesh.settle()
    first.answer_all()
    mesh.advance(1.0)
    Guest(mesh, "h", "c", clean_start=False).subscribe("t")
    mesh.settle()
    first.pair.ended()
    Guest(mesh, "p", "publisher").publish("t", b"2")  # which the broker of h has yet to deliver
    mesh.settle()
    back = Guest(mesh, "e", "c", session_present=True, clean_start=False)
    back.subscribe("t")
    mesh.advance(1.0)
    assert back.payloads() == [b"2"]


def test_what_is_kept_does_not_age_by_a_clock_that_is_set() -> None:
    mesh = mesh_of("deph")
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    (holder,) = strategy(mesh, "d").holders("d")
    publisher = next(name for name in "eph" if name != holder)
    Guest(mesh, publisher, "publisher").publish("t", b"1")
    mesh.advance(0.5)
    queues = care(mesh, holder).queues
    assert queues.has_pending("c")
    mesh.time += 1000.0
    mesh.advance(DEAD_SECONDS)
    assert queues.has_pending("c")
    for _ in range(62):
        mesh.advance(1.0)
    assert not queues.has_pending("c")


def test_the_origin_keeps_for_clients_of_a_dead_node_that_holders_may_not_know(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    for name in "eph":
        assert "d" in strategy(mesh, name).route("t", None).holds


@pytest.mark.thorough
def test_a_client_may_subscribe_as_often_as_it_likes_after_it_came_back(mesh: Network) -> None:
    missed(mesh, b"1")
    back = Guest(mesh, "e", "c", clean_start=False)
    back.subscribe("t")
    for number in range(1200):  # more than Python's calls may be deep
        back.subscribe(f"u/{number}")
    mesh.settle()
    assert back.payloads() == [b"1"]


def test_the_log_of_injections_is_closed_when_nobody_comes_back_any_more(mesh: Network) -> None:
    missed(mesh, b"1")
    back = Guest(mesh, "e", "c", clean_start=False)
    back.subscribe("t")
    back.subscribe("t")
    mesh.settle()
    back.answer_all()
    mesh.advance(care(mesh, "e").window + 1)
    Guest(mesh, "e", "other").publish("t", b"2")
    mesh.settle()
    assert len(care(mesh, "e").log) == 0


def test_a_client_that_comes_to_a_node_which_has_found_nobody_yet_gets_its_pending_messages_once_it_has(
    mesh: Network,
) -> None:
    missed(mesh, b"1")
    mesh.add("new", options=OPTIONS, cluster_timeout=5.0, barrier_timeout=1.0, strategy=Mesh)
    mesh.nodes["new"].core.cluster.attach(Membership())
    back = Guest(mesh, "new", "c")
    back.subscribe("t")
    mesh.advance(DEAD_SECONDS)
    assert back.payloads() == []
    for other in "eph":
        mesh.link("new", other)
    mesh.settle()
    mesh.advance(PUSH_SECONDS)
    assert back.payloads() == [b"1"]


def test_what_is_kept_for_a_client_does_not_wait_for_what_is_published_meanwhile(mesh: Network) -> None:
    missed(mesh, b"1")
    publishers = [Guest(mesh, each, f"publisher at {each}") for each in "eph"]
    mesh.add("new", options=OPTIONS, cluster_timeout=5.0, barrier_timeout=1.0, strategy=Mesh)
    back = Guest(mesh, "new", "c")
    back.subscribe("t")
    mesh.advance(DEAD_SECONDS)
    for other in "eph":
        mesh.link("new", other)
    mesh.settle()
    mesh.advance(PUSH_SECONDS - ACK_DELAY / 2)
    for publisher in publishers:
        publisher.publish("t", b"new")
    mesh.settle()
    mesh.advance(ACK_DELAY / 2)  # what was published is not acknowledged yet
    assert back.payloads() == [b"1"]


def test_a_client_whose_session_a_node_just_started_did_not_know_gets_its_pending_messages_from_elsewhere(
    mesh: Network,
) -> None:
    there = Guest(mesh, "d", "c", clean_start=False)
    there.subscribe("t")
    there.pair.ended()
    mesh.settle()
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    mesh.add("new", options=OPTIONS, cluster_timeout=5.0, barrier_timeout=1.0, strategy=Mesh)
    back = Guest(mesh, "new", "c", session_present=True, clean_start=False)
    back.subscribe("t")
    mesh.settle()
    for other in "deph":
        mesh.link("new", other)
    mesh.settle()
    mesh.advance(PUSH_SECONDS)
    assert back.payloads() == [b"1"]


def test_who_keeps_something_for_a_client_tells_a_node_just_started_that_it_was_elsewhere(
    mesh: Network,
) -> None:
    missed(mesh, b"1")
    mesh.advance(DEAD_SECONDS)
    mesh.add("new", options=OPTIONS, cluster_timeout=5.0, barrier_timeout=1.0, strategy=Mesh)
    back = Guest(mesh, "new", "c", session_present=True, clean_start=False)
    back.subscribe("t")
    mesh.settle()
    for other in "eph":  # of which none says that the client was at the dead one: it is not there any more
        mesh.link("new", other)
    mesh.settle()
    mesh.advance(PUSH_SECONDS)
    assert back.payloads() == [b"1"]


def test_sessions_that_a_node_just_started_did_not_know_are_bounded_and_what_that_costs_is_counted(
    mesh: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returning, "MOST_UNKNOWN_SESSIONS", 2)
    sites = dict(zip(("c1", "c2", "c3"), "dep", strict=True))
    for client, site in sites.items():
        there = Guest(mesh, site, client, clean_start=False)
        there.subscribe("t")
        there.pair.ended()
    mesh.settle()
    Guest(mesh, "h", "publisher").publish("t", b"1")
    mesh.settle()
    mesh.add("new", options=OPTIONS, cluster_timeout=5.0, barrier_timeout=1.0, strategy=Mesh)
    back = {}
    for client in sites:
        back[client] = Guest(mesh, "new", client, session_present=True, clean_start=False)
        back[client].subscribe("t")
    mesh.settle()
    for other in "deph":
        mesh.link("new", other)
    mesh.settle()
    mesh.advance(PUSH_SECONDS)
    given = {client: guest.payloads() for client, guest in back.items()}
    assert given == {"c1": [], "c2": [b"1"], "c3": [b"1"]}
    assert mesh.nodes["new"].core.counters.others()["unknown_sessions_forgotten"] == 1


@pytest.mark.parametrize("back_before", [True, False])
def test_a_client_that_connects_again_before_its_node_hears_that_it_was_elsewhere_gets_its_pending_messages(
    mesh: Network, back_before: bool
) -> None:
    missed(mesh, b"1")
    mesh.advance(DEAD_SECONDS)
    mesh.add("new", options=OPTIONS, cluster_timeout=5.0, barrier_timeout=1.0, strategy=Mesh)
    first = Guest(mesh, "new", "c", session_present=True, clean_start=False)
    first.subscribe("t")
    first.pair.ended()
    mesh.settle()
    if back_before:
        back = Guest(mesh, "new", "c", session_present=True, clean_start=False)
    for other in "eph":
        mesh.link("new", other)
    mesh.settle()
    mesh.advance(PUSH_SECONDS)
    if not back_before:
        back = Guest(mesh, "new", "c", session_present=True, clean_start=False)
        mesh.settle()
    assert back.payloads() == [b"1"]


def test_a_client_whose_connection_is_cut_before_it_subscribed_again_still_gets_all_of_it(
    mesh: Network,
) -> None:
    missed(mesh, b"1")
    mesh.advance(DEAD_SECONDS)
    Guest(mesh, "e", "c").pair.ended()
    mesh.advance(LEFT_SECONDS + 1.0)
    back = Guest(mesh, "h", "c")
    back.subscribe("t")
    mesh.settle()
    assert back.payloads() == [b"1"]


def test_a_client_with_a_clean_session_that_says_good_bye_has_nothing_pending(mesh: Network) -> None:
    missed(mesh, b"1")
    mesh.advance(DEAD_SECONDS)
    there = Guest(mesh, "e", "c")
    there.send(Disconnect())
    there.pair.ended()
    mesh.advance(LEFT_SECONDS + 1.0)
    back = Guest(mesh, "h", "c")
    back.subscribe("t")
    mesh.settle()
    assert back.payloads() == []


def test_what_a_client_publishes_after_it_subscribed_again_its_broker_gives_it(mesh: Network) -> None:
    missed(mesh, b"1")
    back = Guest(mesh, "e", "c", clean_start=False)
    back.send(Subscribe(1, (Subscription("t", 1),)))
    back.send(Publish("t", b"2", 1, packet_id=2))
    back.broker(SubAck(1, (1,)))  # and the broker has no room to deliver, for now
    back.broker(PubAck(2))
    mesh.advance(1.0)
    assert back.payloads() == [b"1"]


@pytest.mark.parametrize(("topic", "waits"), [("t", True), ("other", False)])
def test_a_client_waits_for_what_the_broker_has_yet_to_answer_only_where_it_asked_for_it(
    mesh: Network, topic: str, waits: bool
) -> None:
    missed(mesh, b"1")
    Guest(mesh, "e", "publisher").send(Publish(topic, b"2", 1, packet_id=1))
    back = Guest(mesh, "e", "c", clean_start=False)
    back.subscribe("t")
    mesh.settle()
    assert back.payloads() == ([] if waits else [b"1"])


@pytest.mark.parametrize("delivers", [True, False])
def test_what_a_publisher_sent_again_a_client_that_asks_for_more_just_then_gets_once(
    mesh: Network, delivers: bool
) -> None:
    missed(mesh)
    back = Guest(mesh, "e", "c", clean_start=False)
    back.subscribe("t")
    mesh.settle()
    back.subscribe("other")  # which others have yet to hear
    publisher = Guest(mesh, "e", "publisher", session_present=True, clean_start=False)
    publisher.send(Publish("t", b"1", 2, dup=True, packet_id=1))
    if delivers:
        back.broker(Publish("t", b"1", 1, packet_id=1))
    publisher.broker(PubRec(1))
    mesh.advance(1.0)
    back.answer_all()
    mesh.settle()
    assert back.payloads() == [b"1"]


def test_what_a_publisher_sent_again_is_given_also_to_a_client_that_asks_for_more_meanwhile(
    mesh: Network,
) -> None:
    missed(mesh)
    back = Guest(mesh, "e", "c", clean_start=False)
    back.subscribe("t")
    mesh.settle()
    publisher = Guest(mesh, "e", "publisher", session_present=True, clean_start=False)
    publisher.send(Publish("t", b"1", 2, dup=True, packet_id=1))
    publisher.broker(PubRec(1))
    back.subscribe("other")
    mesh.advance(1.0)
    assert back.payloads() == [b"1"]


def test_a_new_home_that_is_restarted_knows_up_to_where_others_did_not_know_its_client(mesh: Network) -> None:
    missed(mesh)
    Guest(mesh, "e", "c", clean_start=False, keep_alive=0).subscribe("t")
    mesh.settle()
    returned = mesh.nodes["e"].core.interest.records["c"].returned
    assert returned is not None
    assert set(returned) == {"e", "p", "h"}
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    again = Network(time=mesh.time + 1)
    again.add("e", options=OPTIONS, strategy=Mesh, cluster_timeout=5.0, barrier_timeout=1.0)
    record = record_of(state_of(mesh.nodes["e"].core.interest.records["c"]))
    again.nodes["e"].core.sessions.remember(record, {"t": 1}, 0.0)
    Guest(again, "e", "c", session_present=True, clean_start=False)
    routed = MessageId("p", mesh.nodes["p"].core.settings.epoch, 0, 1)
    late = hold(routed, Publish("t", b"1", 1), 4, again.time)
    returns = care(again, "e").returns
    assert returns._clients["c"].last is not None
    assert returns._clients["c"].last.routed_here(late)


class TestWhatAClientHadBeforeItsNewHomeWasKilled:
    """It got "1" from who kept it, and answered; the origin's own copy had yet to come."""

    def restarted(self, mesh: Network) -> tuple[Network, MessageId]:
        journal, core = MemoryJournal(), mesh.nodes["e"].core
        core.wal = core.interest._wal = WriteAheadLog(journal)
        missed(mesh, b"1")
        back = Guest(mesh, "e", "c", clean_start=False)
        back.subscribe("t")
        mesh.settle()
        back.answer_all()
        mesh.settle()
        assert back.payloads() == [b"1"]
        stored = Recovery({}, DuplicateWindow(1_000), True, lambda *_: None).replay(journal)
        again = Network(time=mesh.time + 1)
        again.add("e", options=OPTIONS, strategy=Mesh, cluster_timeout=5.0, barrier_timeout=1.0)
        state.load(again.nodes["e"].core, DeadLetters(), stored)
        return again, MessageId("p", mesh.nodes["p"].core.settings.epoch, 0, 1)

    def test_it_does_not_get_from_its_broker_which_is_given_it_now(self, mesh: Network) -> None:
        again, (origin, epoch, lane, sequence) = self.restarted(mesh)
        frame = codec.encode(Publish("t", b"1", 1, packet_id=1), 4)
        watch = care(again, "e").log.lane(lane)
        watch.queued(Run(origin, epoch, sequence, 1, 4, 1, 1, again.time, frame))
        watch.sent(origin, epoch, sequence, 0)
        client = Guest(again, "e", "c", session_present=True, clean_start=False)
        again.settle()
        client.broker(Publish("t", b"1", 1, packet_id=1))
        client.broker(Publish("t", b"1", 1, packet_id=2))  # an equal one
        assert client.payloads() == [b"1"]

    def test_it_is_not_given_again_by_who_was_not_told(self, mesh: Network) -> None:
        again, identifier = self.restarted(mesh)
        client = Guest(again, "e", "c", session_present=True, clean_start=False)
        again.settle()
        kept = hold(identifier, Publish("t", b"1", 1), 4, again.time)
        care(again, "e").returns.late("c", [kept], "h")
        again.settle()
        assert client.payloads() == []


def test_what_clients_had_is_bounded_for_all_together_and_makes_room_when_one_is_gone(
    mesh: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_HAD", 2)
    core = mesh.nodes["e"].core
    core.wal = core.interest._wal = WriteAheadLog(MemoryJournal())
    had = {}
    for client in ("a", "b"):
        Guest(mesh, "e", client, clean_start=False)
        core.sessions.returned(client, {})
        had[client] = core.interest.records[client].had
    one, two, three, four = (MessageId("p", 1, 0, sequence) for sequence in range(1, 5))
    core.sessions.had("a", [one, one])
    core.sessions.had("b", [two, three])
    assert (list(had["a"]), list(had["b"])) == ([one], [three])
    assert core.counters["given_forgotten"] == 1
    core.sessions.forget(core.interest.records["a"])
    core.sessions.had("b", [four])
    assert list(had["b"]) == [three, four]
    assert core.counters["given_forgotten"] == 1


@pytest.mark.parametrize(("published", "given"), [(-1.0, [b"1"]), (10.0, [])])
def test_a_home_that_is_restarted_knows_what_was_kept_there_before_its_client_subscribed(
    published: float, given: list[bytes]
) -> None:
    mesh = mesh_of("e", linked=False)
    Guest(mesh, "e", "c", clean_start=False, keep_alive=0).subscribe("t")
    granted = mesh.time
    again = Network(time=granted + 20.0)
    again.add("e", options=OPTIONS, strategy=Mesh, cluster_timeout=5.0, barrier_timeout=1.0)
    record = record_of(state_of(mesh.nodes["e"].core.interest.records["c"]))
    again.nodes["e"].core.sessions.remember(record, {"t": 1}, 0.0)
    client = Guest(again, "e", "c", session_present=True, clean_start=False)
    again.settle()
    late = hold(MessageId("p", 1, 0, 1), Publish("t", b"1", 1), 4, granted + published)
    care(again, "e").returns.late("c", [late], "p", own=True)
    again.settle()
    assert client.payloads() == given


def test_an_origin_that_heard_too_late_of_a_client_is_known_to_have_heard(mesh: Network) -> None:
    missed(mesh)
    back = Guest(mesh, "e", "c", clean_start=False)
    mesh.stuck |= {("p", "e")}
    back.subscribe("t")
    mesh.settle()
    mesh.advance(1.0)
    mesh.stuck.clear()
    mesh.settle()
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    last = care(mesh, "e").returns._clients["c"].last
    identifier = MessageId("p", mesh.nodes["p"].core.settings.epoch, 0, 1)
    assert last is not None
    assert last.routed_here(hold(identifier, Publish("t", b"1", 1), 4, mesh.time))


def test_a_receipt_that_the_disk_has_not_taken_is_not_acknowledged(mesh: Network) -> None:
    client = Guest(mesh, "d", "c")
    client.subscribe("t")
    mesh.settle()
    (holder,) = strategy(mesh, "d").holders("d")
    shelf = care(mesh, holder).queues.shelf
    shelf._pending.append(b"what the disk did not take")
    client.delivered(b"1", 1)
    mesh.advance(0.5)
    assert care(mesh, "d").receipts.outbox.has_unacknowledged(holder)
    shelf._pending.clear()
    mesh.advance(TICK_SECONDS)
    assert not care(mesh, "d").receipts.outbox.has_unacknowledged(holder)


def test_what_is_published_at_a_site_that_was_started_since_is_kept_for_who_has_yet_to_come(
    mesh: Network,
) -> None:
    missed(mesh, b"1")
    mesh.add("new", options=OPTIONS, cluster_timeout=5.0, barrier_timeout=1.0, strategy=Mesh)
    for other in "eph":
        mesh.link("new", other)
    mesh.settle()
    Guest(mesh, "new", "started").publish("t", b"2")
    mesh.settle()
    back = Guest(mesh, "e", "c", clean_start=False)
    back.subscribe("t")
    mesh.settle()
    assert sorted(back.payloads()) == [b"1", b"2"]
