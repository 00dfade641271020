"""A site of a mesh is killed: what its clients and publishers see at the others."""

from __future__ import annotations

import pytest

from brokerweave.care.client_care import BEFORE_SECONDS, ClientCare
from brokerweave.care.queues import EARLY_SECONDS, Queues
from brokerweave.care.senders import Senders
from brokerweave.links.journal import MemoryJournal
from brokerweave.mqtt.packets import Disconnect, PubAck, Publish
from tests.unit.care.mesh_sites import DEAD_SECONDS, Guest, care, injected, kill, mesh_of, strategy
from tests.unit.node.network import Network


@pytest.fixture
def mesh() -> Network:
    return mesh_of("deph")


def kinds(guest: Guest) -> list[str]:
    return [type(packet).__name__ for packet in guest.packets()]


class TestAClientThatComesBack:
    def test_gets_what_it_missed_behind_suback_and_the_rest_from_its_new_broker(self, mesh: Network) -> None:
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        publisher = Guest(mesh, "p", "publisher")
        publisher.publish("t", b"received")
        mesh.settle()
        client.delivered(b"received", 1)
        mesh.settle()
        publisher.publish("t", b"on its way")
        mesh.settle()
        kill(mesh, "d")
        publisher.publish("t", b"later")
        mesh.settle()
        assert publisher.acknowledged() == [101, 102, 103]
        back = Guest(mesh, "e", "c")
        back.subscribe("t")
        mesh.settle()
        assert kinds(back) == ["ConnAck", "SubAck", "Publish", "Publish"]
        assert back.payloads() == [b"on its way", b"later"]
        publisher.publish("t", b"now")
        mesh.settle()
        assert back.payloads() == [b"on its way", b"later"]
        assert injected(mesh, "e") == [b"now"]

    def test_is_given_it_once(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        Guest(mesh, "p", "publisher").publish("t", b"1")
        mesh.settle()
        kill(mesh, "d")
        back = Guest(mesh, "e", "c")
        back.subscribe("t")
        mesh.settle()
        back.answer_all()
        mesh.advance(1.0)
        assert back.payloads() == [b"1"]
        kill(mesh, "e")
        mesh.advance(DEAD_SECONDS)
        again = Guest(mesh, "h", "c")
        again.subscribe("t")
        mesh.advance(2.0)
        assert kinds(again) == ["ConnAck", "SubAck"]
        assert not any(len(care(mesh, name).queues) for name in mesh.nodes)

    def test_is_given_nothing_of_what_it_did_not_subscribe_to_again(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        Guest(mesh, "p", "publisher").publish("t", b"1")
        mesh.settle()
        kill(mesh, "d")
        back = Guest(mesh, "e", "c")
        back.subscribe("u")
        mesh.advance(2.0)
        assert back.payloads() == []

    def test_comes_back_after_its_window_as_a_new_one(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        Guest(mesh, "p", "publisher").publish("t", b"1")
        mesh.settle()
        kill(mesh, "d")
        for _ in range(70):
            mesh.advance(1.0)
        back = Guest(mesh, "e", "c")
        back.subscribe("t")
        mesh.advance(2.0)
        assert back.payloads() == []
        assert sum(sum(care(mesh, n).queues.dropped.values()) for n in mesh.nodes) == 1

    def test_misses_nothing_that_is_published_where_it_comes_while_it_subscribes(self, mesh: Network) -> None:
        """The broker acknowledges a local publication between SUBACK and the end of the judgement, and does
        not deliver it."""
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        kill(mesh, "d")
        mesh.advance(DEAD_SECONDS)
        local = Guest(mesh, "e", "publisher")
        local.send(Publish("t", b"meanwhile", 1, packet_id=9))
        back = Guest(mesh, "e", "c")
        back.subscribe("t")
        mesh.settle()
        local.broker(PubAck(9))
        for _ in range(30):
            mesh.advance(0.01)
        assert back.payloads() == [b"meanwhile"]

    @pytest.mark.parametrize("taken", [True, False])
    def test_finds_what_it_missed_when_only_its_broker_died(self, mesh: Network, taken: bool) -> None:
        """`taken`: the broker had it, and lost it with the session; else it gets it when it is back."""
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        Guest(mesh, "p", "publisher").publish("t", b"missed")
        mesh.settle()
        assert injected(mesh, "d") == [b"missed"]
        watch = mesh.nodes["d"].core.injectors[0].watch
        if taken and watch is not None:
            watch.sent("p", 1, 1, 0)
            watch.ended("p", 1, 1, True)
        client.pair.ended(broker_left=True)
        mesh.settle()
        back = Guest(mesh, "d", "c")
        back.subscribe("t")
        mesh.advance(2.0)
        assert back.payloads() == [b"missed"] * taken


def test_of_a_client_at_two_sites_the_older_pair_is_closed(mesh: Network) -> None:
    older = Guest(mesh, "d", "c", version=5)
    older.subscribe("t")
    mesh.advance(1.0)
    newer = Guest(mesh, "e", "c", version=5)
    mesh.settle()
    assert older.packets()[-1] == Disconnect(0x8E)
    assert not any(isinstance(packet, Disconnect) for packet in newer.packets())
    assert {strategy(mesh, name).table.home("c") for name in mesh.nodes} == {"e"}


def test_a_holder_that_was_out_of_reach_hears_afterwards_what_clients_have(mesh: Network) -> None:
    client = Guest(mesh, "d", "c")
    client.subscribe("t")
    mesh.settle()
    (holder,) = strategy(mesh, "d").holders("d")
    publisher = next(name for name in "eph" if name != holder)
    Guest(mesh, publisher, "publisher").publish("t", b"1")
    mesh.settle()
    mesh.cut("d", holder)
    mesh.advance(DEAD_SECONDS)
    assert holder not in strategy(mesh, "d").live
    client.delivered(b"1", 1)
    mesh.settle()
    assert care(mesh, holder).queues.has_pending("c")
    mesh.link("d", holder)
    mesh.settle()
    assert not care(mesh, holder).queues.has_pending("c")


def test_a_holder_that_gets_late_what_a_client_has_by_now_is_told_so() -> None:
    mesh = mesh_of("deph", copies=3)
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    late, near = strategy(mesh, "p").holders("d")
    (home,) = set("eph") - {late, near}
    mesh.cut(near, late)
    Guest(mesh, near, "publisher").publish("t", b"1")
    mesh.settle()
    kill(mesh, "d")
    care(mesh, home).warming_up = False  # else all hear it at once
    back = Guest(mesh, home, "c")
    back.subscribe("t")
    mesh.settle()
    back.answer_all()
    mesh.settle()
    assert back.payloads() == [b"1"]
    mesh.link(near, late)
    mesh.settle()
    assert mesh.nodes[late].core.counters["late_publications"] == 1
    assert not any(care(mesh, name).queues.has_pending("c") for name in mesh.nodes)


def test_what_is_published_where_a_client_comes_back_is_kept_until_the_client_has_it(mesh: Network) -> None:
    """Also if the broker had it before SUBACK, and the node routed it after."""
    Guest(mesh, "d", "c").subscribe("t")
    publisher = Guest(mesh, "e", "publisher")
    mesh.settle()
    (holder,) = strategy(mesh, "e").holders("e")
    kill(mesh, "d")
    back = Guest(mesh, "e", "c")
    publisher.send(Publish("t", b"1", 1, packet_id=7))
    back.subscribe("t")
    publisher.broker(PubAck(7))
    back.broker(Publish("t", b"1", 1, packet_id=1))
    mesh.settle()
    assert care(mesh, holder).queues.has_pending("c")
    mesh.advance(1.0)
    assert back.payloads() == [b"1"]
    back.send(PubAck(1))
    mesh.settle()
    assert not care(mesh, holder).queues.has_pending("c")


def test_what_is_published_where_a_clients_site_is_known_by_hearsay_only_comes_when_it_is_linked() -> None:
    mesh = mesh_of("dehp", linked=False)
    for a, b in ("de", "dh", "eh", "dp"):
        mesh.link(a, b)
    mesh.settle()
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    kill(mesh, "d")
    back = Guest(mesh, "e", "c")
    back.subscribe("t")
    mesh.settle()
    mesh.link("h", "p")
    mesh.settle()
    mesh.advance(1.0)
    assert strategy(mesh, "p").table.home("c") == "e"
    publisher = Guest(mesh, "p", "publisher")
    publisher.publish("t", b"1")
    publisher.publish("t", b"2")
    mesh.settle()
    assert publisher.acknowledged() == [101, 102]
    care(mesh, "e").warming_up = False
    mesh.link("e", "p")
    mesh.settle()
    mesh.advance(1.0)
    assert back.payloads() == [b"1", b"2"]
    assert injected(mesh, "e") == []
    back.answer_all()
    mesh.settle()
    assert not any(care(mesh, name).queues.has_pending("c") for name in "hp")


@pytest.mark.parametrize("others", [False, True])
def test_what_a_client_had_where_it_was_a_holder_that_was_started_since_does_not_keep(others: bool) -> None:
    mesh = mesh_of("deph", copies=4)
    client = Guest(mesh, "d", "c")
    client.subscribe("t")
    if others:  # so that it is kept for clients of e as well
        Guest(mesh, "e", "other").subscribe("t")
    mesh.settle()
    mesh.stuck.add(("p", "h"))  # h is away, and will be told what it was to keep when it is back
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    client.delivered(b"1", 1)
    mesh.settle()
    kill(mesh, "d")
    back = Guest(mesh, "e", "c")
    back.subscribe("t")
    mesh.settle()
    started, now = care(mesh, "h"), mesh.nodes["h"].core.now()
    started.queues, started.started = Queues(1 << 20, 1 << 24, 60.0), now + 0.01
    started.queues.moved("c", "e", strategy(mesh, "h").table.since("c"), now)
    mesh.stuck.clear()
    mesh.advance(1.0)
    assert back.payloads() == []
    assert not started.queues.has_pending("c")


def test_what_a_client_had_before_who_keeps_it_hears_of_its_new_session_is_not_given_once_more() -> None:
    mesh = mesh_of("dph", copies=3)
    first = Guest(mesh, "d", "c")
    first.subscribe("t")
    mesh.settle()
    mesh.cut("d", "h")
    mesh.stuck.add(("p", "h"))
    Guest(mesh, "p", "publisher").publish("t", b"1")
    mesh.settle()
    first.pair.ended()
    mesh.advance(0.1)
    again = Guest(mesh, "d", "c")
    again.subscribe("t")
    mesh.settle()
    again.delivered(b"1", 1)
    mesh.settle()
    mesh.link("d", "h")
    mesh.settle()
    mesh.stuck.clear()
    mesh.settle()
    assert not care(mesh, "h").queues.has_pending("c")
    assert mesh.nodes["h"].core.counters["late_publications"] == 0


class TestAPublicationThatIsResent:
    def test_is_not_doubled_where_the_first_one_came(self, mesh: Network) -> None:
        Guest(mesh, "h", "subscriber").subscribe("t")
        mesh.settle()
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        kill(mesh, "d")
        again = Guest(mesh, "e", "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert again.acknowledged() == [7]
        assert injected(mesh, "h") == [b"1"]

    def test_is_not_kept_by_who_was_started_since_for_clients_of_a_living_node(self, mesh: Network) -> None:
        client = Guest(mesh, "e", "c")
        client.subscribe("t")
        mesh.settle()
        (holder,) = strategy(mesh, "e").holders("e")
        near = next(name for name in "ph" if name != holder)
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        client.delivered(b"1", 1)
        mesh.settle()
        kill(mesh, "d")
        mesh.cut(near, holder)
        Guest(mesh, near, "publisher").publish("t", b"1", packet_id=7, dup=True)
        mesh.advance(0.5)
        restarted = care(mesh, holder)
        restarted.resends.senders, restarted.started = Senders(), mesh.nodes[holder].core.now()
        mesh.link(near, holder)
        mesh.settle()
        assert not care(mesh, holder).queues.has_pending("c")

    @pytest.mark.parametrize("at_home", [False, True])
    def test_is_not_kept_for_who_has_it_by_who_did_not_hear_of_the_first_one(
        self, mesh: Network, at_home: bool
    ) -> None:
        client = Guest(mesh, "e", "c")
        client.subscribe("t")
        mesh.settle()
        (holder,) = strategy(mesh, "e").holders("e")
        near = "e" if at_home else next(name for name in "ph" if name != holder)
        mesh.stuck.add(("d", holder))
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        client.delivered(b"1", 1)
        mesh.settle()
        kill(mesh, "d")
        care(mesh, holder).queues.expire(mesh.nodes[holder].core.now() + EARLY_SECONDS)
        again = Guest(mesh, near, "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert again.acknowledged() == [7]
        assert not care(mesh, holder).queues.has_pending("c")

    def test_is_not_kept_again_for_who_has_the_first_one(self) -> None:
        """The other holder died, too, and nobody knows that yet: its publisher's node keeps what it can."""
        mesh = mesh_of("deph", copies=3)
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        gone, left = strategy(mesh, "d").holders("d")
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        client.delivered(b"1", 1)
        mesh.settle()
        for site in ("d", gone):
            kill(mesh, site)
        again = Guest(mesh, left, "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert again.acknowledged() == [7]
        assert not care(mesh, left).queues.has_pending("c")

    def test_does_not_reach_a_broker_that_has_it(self, mesh: Network) -> None:
        Guest(mesh, "e", "subscriber").subscribe("t")
        mesh.settle()
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        kill(mesh, "d")
        again = Guest(mesh, "e", "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert again.to_broker == b""
        assert again.acknowledged() == [7]
        assert injected(mesh, "e") == [b"1"]

    def test_does_not_undo_what_was_retained_since(self, mesh: Network) -> None:
        publisher = Guest(mesh, "d", "publisher")
        for number, payload, dup in ((7, b"1", False), (8, b"2", False), (7, b"1", True)):
            publisher.send(Publish("t", payload, 1, True, dup, number))
            if publisher.to_broker:
                publisher.broker(PubAck(number))
            mesh.settle()
        frames = [node.core.retained.index.frame("t") for node in mesh.nodes.values()]
        assert [frame is not None and frame.endswith(b"2") for frame in frames] == [True] * 4

    def test_is_new_where_the_first_one_did_not_come(self, mesh: Network) -> None:
        Guest(mesh, "h", "subscriber").subscribe("t")
        mesh.settle()
        mesh.stuck |= {("d", other) for other in "eph"}
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        kill(mesh, "d")
        Guest(mesh, "e", "publisher").publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert injected(mesh, "h") == [b"1"]

    def test_without_dup_is_another_one(self, mesh: Network) -> None:
        Guest(mesh, "h", "subscriber").subscribe("t")
        mesh.settle()
        publisher = Guest(mesh, "d", "publisher")
        publisher.publish("t", b"1", packet_id=7)
        publisher.publish("t", b"1", packet_id=7)
        mesh.settle()
        assert injected(mesh, "h") == [b"1", b"1"]


class TestQueuesOnDisk:
    def prepare(self, journal: MemoryJournal) -> tuple[Network, str, Guest]:
        """A client of d is owed a message at the only holder of d, which keeps it in a journal."""
        mesh = mesh_of("deph")
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        (holder,) = strategy(mesh, "e").holders("d")
        care(mesh, holder).keep_in(lambda: journal)
        publisher = next(name for name in "eph" if name != holder)
        Guest(mesh, publisher, "publisher").publish("t", b"1")
        mesh.settle()
        return mesh, holder, client

    def test_are_found_again_after_a_restart(self) -> None:
        journal = MemoryJournal()
        self.prepare(journal)
        fresh = mesh_of("x", linked=False)
        care(fresh, "x").keep_in(lambda: journal)
        assert [held.publish.payload for held in care(fresh, "x").queues.take("c")] == [b"1"]

    def test_are_written_before_the_publisher_hears(self) -> None:
        journal = MemoryJournal()
        mesh = mesh_of("dp")
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        care(mesh, "p").keep_in(lambda: journal)
        publisher = Guest(mesh, "p", "publisher")
        publisher.publish("t", b"1")
        assert publisher.acknowledged() == []
        assert journal.last == 1

    def test_give_up_what_a_client_got_while_its_holder_was_away(self) -> None:
        """Its receipts went to a node that counted as dead, and go again when that is back."""
        journal = MemoryJournal()
        mesh, holder, client = self.prepare(journal)
        kept = self.kill(mesh, holder)
        client.delivered(b"1", 1)
        mesh.settle()
        assert not self.restart(mesh, holder, journal, kept).queues.has_pending("c")

    def test_keep_what_a_client_has_not_got_while_its_holder_was_away(self) -> None:
        """Its broker has it, and may die with it."""
        journal = MemoryJournal()
        mesh, holder, _ = self.prepare(journal)
        kept = self.kill(mesh, holder)
        assert self.restart(mesh, holder, journal, kept).queues.has_pending("c")

    def kill(self, mesh: Network, holder: str) -> dict[str, int]:
        """What it knew of d's clients."""
        kept = dict(mesh.nodes[holder].core.kept["d"])
        kill(mesh, holder)
        mesh.advance(DEAD_SECONDS)
        return kept

    def restart(self, mesh: Network, holder: str, journal: MemoryJournal, kept: dict[str, int]) -> ClientCare:
        mesh.add(
            holder,
            options=mesh.nodes["d"].core.settings.options,
            strategy=type(strategy(mesh, "d")),
            cluster_timeout=5.0,
            barrier_timeout=1.0,
        )
        restarted = care(mesh, holder)
        restarted.keep_in(lambda: journal)
        mesh.nodes[holder].core.add_neighbour("d")
        strategy(mesh, holder).neighbour_recalled("d", kept)
        assert restarted.queues.has_pending("c")
        mesh.advance(0.1)
        mesh.link(holder, "d")
        mesh.settle()
        return restarted


@pytest.mark.parametrize("qos", [0, 1])
def test_of_what_was_published_at_qos_0_nobody_is_told_who_has_it(mesh: Network, qos: int) -> None:
    """The client asked for QoS 0, so its broker delivers both alike."""
    client = Guest(mesh, "d", "c")
    client.subscribe("t", 0)
    mesh.advance(BEFORE_SECONDS)
    publisher = Guest(mesh, "p", "publisher")
    if qos:
        publisher.publish("t", b"1")
    else:
        publisher.send(Publish("t", b"1"))
    mesh.settle()
    holders = [care(mesh, name) for name in strategy(mesh, "d").holders("d")]
    assert sum(len(holder.queues) for holder in holders) == qos
    client.broker(Publish("t", b"1"))
    assert care(mesh, "d").receipts.outbox.waiting == bool(qos)
    mesh.settle()
    assert sum(len(holder.queues) for holder in holders) == 0


def test_what_a_holder_drops_for_want_of_room_is_shown_with_its_client(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    publisher = Guest(mesh, "p", "publisher")
    for number in range(40):
        publisher.publish("t", bytes(200_000), 200 + number)
        mesh.settle()
    parts = [care(mesh, name) for name in "pde"]
    dropped = [part.counters()["held_dropped"] for part in parts]
    assert sum(dropped) > 0
    shown = [part.status()["dropped"] for part in parts]
    assert shown == [{"c": count} if count else {} for count in dropped]
