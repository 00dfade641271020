"""Clients change or lose their site: what they, and their publishers, see at the others.

Nodes are cores in memory. `pending` is what the records and copies of a node have for clients.
"""

from __future__ import annotations

import pytest

from brokerweave.care.home import State
from brokerweave.mqtt.packets import Disconnect, PubAck, Publish
from brokerweave.mqtt.properties import Property
from tests.unit.care.mesh_sites import DEAD_SECONDS, Guest, care, injected, kill, mesh_of
from tests.unit.node.network import Network


@pytest.fixture
def mesh() -> Network:
    return mesh_of("deph")


def kinds(guest: Guest) -> list[str]:
    return [type(packet).__name__ for packet in guest.packets()]


def pending(mesh: Network, name: str, client: str = "c") -> list[bytes]:
    """Of a client that has its home there, or a copy of its record."""
    found = care(mesh, name)
    tables = [found.homes.table, *(copy.table for copy in found.copies.homes.values())]
    records = [table.records[client] for table in tables if client in table.records]
    return sorted({held.publish.payload for record in records for held in record.queue.values()})


def homes(mesh: Network, client: str = "c") -> list[str]:
    found = {name: care(mesh, name).homes.get(client) for name in mesh.nodes}
    return [name for name, home in found.items() if home is not None and home.state is State.HOME]


def holder_of(mesh: Network, name: str) -> str:
    (holder,) = care(mesh, name).homes.holders.names
    return holder


def missed(mesh: Network, *payloads: bytes) -> None:
    """By a client of d, which died."""
    Guest(mesh, "d", "c", clean_start=False).subscribe("t")
    mesh.settle()
    publisher = Guest(mesh, "p", "publisher")
    for payload in payloads:
        publisher.publish("t", payload)
    mesh.settle()
    kill(mesh, "d")


class TestAClientOfASiteThatDied:
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
        assert injected(mesh, "e")[-1:] == [b"now"]

    def test_is_given_it_once(self, mesh: Network) -> None:
        missed(mesh, b"1")
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
        assert [pending(mesh, name) for name in mesh.nodes] == [[], []]

    def test_is_given_nothing_of_what_it_did_not_subscribe_to_again(self, mesh: Network) -> None:
        missed(mesh, b"1")
        back = Guest(mesh, "e", "c")
        back.subscribe("u")
        mesh.advance(2.0)
        assert back.payloads() == []

    def test_comes_back_after_its_window_as_a_new_one(self, mesh: Network) -> None:
        missed(mesh, b"1")
        mesh.advance(DEAD_SECONDS)
        assert len(homes(mesh)) == 1
        for _ in range(130):
            mesh.advance(1.0)
        assert [pending(mesh, name) for name in mesh.nodes] == [[], [], []]
        assert sum(node.core.counters["clients_given_up"] for node in mesh.nodes.values()) == 1
        back = Guest(mesh, "e", "c")
        back.subscribe("t")
        mesh.advance(2.0)
        assert back.payloads() == []

    def test_is_adopted_by_the_next_holder_if_the_first_one_dies_too(self) -> None:
        mesh = mesh_of("deph", copies=3)
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        publisher = next(name for name in "eph" if name not in care(mesh, "d").homes.holders.names)
        Guest(mesh, publisher, "publisher").publish("t", b"1")
        mesh.settle()
        first, _ = care(mesh, "d").homes.holders.names
        kill(mesh, "d")
        kill(mesh, first)
        mesh.advance(DEAD_SECONDS)
        back = Guest(mesh, publisher, "c")
        back.subscribe("t")
        mesh.advance(1.0)
        assert back.payloads() == [b"1"]
        assert homes(mesh) == [publisher]

    def test_misses_nothing_that_is_published_where_it_comes_while_it_subscribes(self, mesh: Network) -> None:
        """The broker acknowledges it after SUBACK, and delivers it to nobody: it came before."""
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

    @pytest.mark.parametrize("subscribes", [False, True])
    def test_gets_it_though_it_did_not_wait_for_suback(self, mesh: Network, subscribes: bool) -> None:
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        Guest(mesh, "h", "publisher").publish("t", b"1")
        mesh.settle()
        kill(mesh, "d")
        mesh.advance(DEAD_SECONDS)
        hasty = Guest(mesh, "e", "c")
        mesh.settle()
        assert care(mesh, "e").homes["c"].claiming is None
        mesh.stuck.add(("p", "e"))
        if subscribes:
            hasty.subscribe("t")
            mesh.settle()
        hasty.pair.ended()
        mesh.stuck.clear()
        mesh.settle()
        again = Guest(mesh, "h", "c")
        again.subscribe("t")
        mesh.settle()
        assert again.payloads() == [b"1"]

    def test_gets_it_though_its_connection_is_cut_before_it_subscribed_again(self, mesh: Network) -> None:
        missed(mesh, b"1")
        Guest(mesh, "e", "c").pair.ended()
        mesh.advance(1.0)
        back = Guest(mesh, "h", "c")
        back.subscribe("t")
        mesh.advance(1.0)
        assert back.payloads() == [b"1"]

    def test_gets_again_what_it_did_not_answer_before_its_connection_ended(self, mesh: Network) -> None:
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

    def test_gets_at_once_no_more_than_it_may_leave_unanswered(self, mesh: Network) -> None:
        """And the holder hears what it has before it gets more."""
        missed(mesh, b"1", b"2")
        mesh.advance(DEAD_SECONDS)
        one_at_once = ((Property.RECEIVE_MAXIMUM, 1),)
        back = Guest(mesh, "e", "c", version=5, clean_start=False, properties=one_at_once)
        back.subscribe("t")
        mesh.settle()
        assert back.payloads() == [b"1"]
        assert not any(mesh.wires.values())
        back.answer_all()
        assert back.payloads() == [b"1", b"2"]
        assert mesh.wires["e", holder_of(mesh, "e")]  # in the same turn

    def test_waits_for_all_in_reach(self, mesh: Network) -> None:
        missed(mesh, b"1")
        mesh.stuck |= {(other, "e") for other in "ph"}
        back = Guest(mesh, "e", "c")
        back.subscribe("t")
        mesh.settle()
        assert kinds(back) == ["ConnAck"]
        mesh.stuck.clear()
        mesh.settle()
        assert kinds(back) == ["ConnAck", "SubAck", "Publish"]

    def test_waits_no_longer_than_patience_and_it_is_counted(self, mesh: Network) -> None:
        missed(mesh, b"1")
        mesh.stuck |= {(other, "e") for other in "ph"}
        back = Guest(mesh, "e", "c")
        back.subscribe("t")
        mesh.settle()
        for _ in range(20):
            mesh.advance(1.0)
        assert "SubAck" in kinds(back)
        assert mesh.nodes["e"].core.counters["claims_late"] == 1

    def test_that_said_good_bye_has_nothing_pending(self, mesh: Network) -> None:
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        Guest(mesh, "p", "publisher").publish("t", b"1")
        mesh.settle()
        client.send(Disconnect())
        client.pair.ended()
        mesh.settle()
        assert [pending(mesh, name) for name in "deph"] == [[], [], [], []]
        kill(mesh, "d")
        mesh.advance(DEAD_SECONDS)
        back = Guest(mesh, "e", "c")
        back.subscribe("t")
        mesh.advance(1.0)
        assert back.payloads() == []


class TestAClientThatMoves:
    def test_is_cut_off_where_it_was(self, mesh: Network) -> None:
        older = Guest(mesh, "d", "c", version=5)
        older.subscribe("t")
        mesh.advance(1.0)
        newer = Guest(mesh, "e", "c", version=5)
        mesh.settle()
        assert older.packets()[-1] == Disconnect(0x8E)
        assert not any(isinstance(packet, Disconnect) for packet in newer.packets())
        assert homes(mesh) == ["e"]
        assert care(mesh, "d").homes.get("c") is None

    def test_is_not_at_a_site_that_returns_with_a_session_from_before(self, mesh: Network) -> None:
        left = Guest(mesh, "d", "c", clean_start=False)
        left.subscribe("t")
        left.pair.ended()
        mesh.settle()
        for name in "eph":
            mesh.cut("d", name)
        mesh.advance(DEAD_SECONDS)
        Guest(mesh, "e", "c", clean_start=False).subscribe("t")
        mesh.settle()
        kill(mesh, "e")
        mesh.advance(DEAD_SECONDS)
        (adopted,) = set(homes(mesh)) - {"d"}
        for name in "ph":
            mesh.link("d", name)
        mesh.advance(1.0)
        assert homes(mesh) == [adopted]
        assert "c" not in mesh.nodes["d"].core.sessions.records

    def test_finds_what_was_published_while_its_old_site_had_not_heard(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        mesh.stuck.add(("p", "e"))  # which does not hear that anybody at e wants it
        moved = Guest(mesh, "e", "c")
        Guest(mesh, "p", "publisher").publish("t", b"1")
        moved.subscribe("t")
        mesh.settle()
        mesh.stuck.clear()
        mesh.advance(1.0)
        for payload in injected(mesh, "e"):
            moved.delivered(payload, 1)
        assert moved.payloads() == [b"1"]

    def test_gets_its_broker_s_late_copy_of_what_it_had_elsewhere_no_more(self, mesh: Network) -> None:
        Guest(mesh, "d", "other").subscribe("t")
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        Guest(mesh, "p", "publisher").publish("t", b"1")
        mesh.settle()
        assert injected(mesh, "d") == [b"1"]  # its broker is away
        elsewhere = Guest(mesh, "e", "c")
        elsewhere.subscribe("t")
        mesh.settle()
        assert elsewhere.payloads() == [b"1"]
        elsewhere.answer_all()
        mesh.settle()
        back = Guest(mesh, "d", "c")
        back.subscribe("t")
        mesh.settle()
        back.delivered(b"1", 1)
        assert back.payloads() == []

    def test_is_where_both_halves_of_a_split_say_when_it_heals(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        for here in "de":
            for there in "ph":
                mesh.cut(here, there)
        mesh.advance(DEAD_SECONDS)
        Guest(mesh, "d", "publisher").publish("t", b"here")
        Guest(mesh, "p", "another").publish("t", b"there")
        mesh.settle()
        newer = Guest(mesh, "p", "c")
        newer.subscribe("t")
        mesh.advance(1.0)
        for here in "de":
            for there in "ph":
                mesh.link(here, there)
        mesh.advance(1.0)
        assert len(homes(mesh)) == 1
        if homes(mesh) == ["p"]:
            assert b"here" in newer.payloads()

    def test_gets_what_a_site_sends_that_reaches_only_its_old_one(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        away = next(name for name in "eph" if name != holder_of(mesh, "d"))
        to = next(name for name in "eph" if name not in (holder_of(mesh, "d"), away))
        mesh.cut(away, to)
        mesh.advance(DEAD_SECONDS)
        moved = Guest(mesh, to, "c")
        moved.subscribe("t")
        mesh.advance(1.0)
        publisher = Guest(mesh, away, "publisher")
        publisher.publish("t", b"1")
        mesh.advance(1.0)
        assert publisher.acknowledged() == [101]
        assert moved.payloads() == [b"1"]
        mesh.link(away, to)
        mesh.advance(1.0)
        assert care(mesh, "d").homes.get("c") is None

    def test_is_let_go_by_its_old_site_when_that_is_in_reach_again(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        mesh.cut("e", "p")
        Guest(mesh, "e", "c").subscribe("t")
        mesh.settle()
        mesh.cut("d", "e")
        mesh.link("e", "p")
        mesh.settle()
        mesh.link("d", "e")
        mesh.settle()
        assert care(mesh, "d").homes.get("c") is None


class TestAHolder:
    def test_that_was_out_of_reach_hears_afterwards_what_clients_have(self, mesh: Network) -> None:
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        holder = holder_of(mesh, "d")
        publisher = next(name for name in "eph" if name != holder)
        Guest(mesh, publisher, "publisher").publish("t", b"1")
        mesh.settle()
        mesh.stuck.add(("d", holder))
        client.delivered(b"1", 1)
        mesh.settle()
        assert pending(mesh, holder) == [b"1"]
        mesh.stuck.clear()
        mesh.settle()
        assert pending(mesh, holder) == []

    def test_that_dies_is_replaced_by_one_that_has_all(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        first = holder_of(mesh, "d")
        publisher = next(name for name in "eph" if name != first)
        Guest(mesh, publisher, "publisher").publish("t", b"1")
        mesh.settle()
        kill(mesh, first)
        mesh.advance(DEAD_SECONDS)
        second = holder_of(mesh, "d")
        assert second != first
        assert pending(mesh, second) == [b"1"]
        kill(mesh, "d")
        mesh.advance(DEAD_SECONDS)
        (last,) = set("eph") - {first, second}
        back = Guest(mesh, last, "c")
        back.subscribe("t")
        mesh.advance(1.0)
        assert back.payloads() == [b"1"]

    def test_gives_its_home_what_came_from_a_site_that_is_dead_as_the_home_sees_it(
        self, mesh: Network
    ) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        origin = next(name for name in "eph" if name != holder_of(mesh, "d"))
        mesh.stuck.add((origin, "d"))
        Guest(mesh, origin, "publisher").publish("t", b"1")
        mesh.settle()
        assert pending(mesh, holder_of(mesh, "d")) == [b"1"]
        mesh.cut(origin, "d")
        mesh.advance(DEAD_SECONDS)
        assert pending(mesh, "d") == []  # in its turn, should the link come back
        kill(mesh, origin)
        mesh.settle()
        assert pending(mesh, "d") == [b"1"]

    def test_gives_it_also_if_its_link_to_that_site_failed_first(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        origin = next(name for name in "eph" if name != holder_of(mesh, "d"))
        mesh.stuck.add((origin, "d"))
        Guest(mesh, origin, "publisher").publish("t", b"1")
        mesh.settle()
        mesh.cut(origin, "d")
        mesh.advance(1.5)
        kill(mesh, origin)
        mesh.settle()
        assert pending(mesh, "d") == []
        mesh.advance(1.0)  # too short for the holder to take it for dead
        assert pending(mesh, "d") == [b"1"]

    def test_is_waited_for_before_the_publisher_hears(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        holder = holder_of(mesh, "d")
        origin = next(name for name in "eph" if name != holder)
        mesh.stuck.add((origin, holder))
        publisher = Guest(mesh, origin, "publisher")
        publisher.publish("t", b"1")
        mesh.settle()
        assert publisher.acknowledged() == []
        mesh.stuck.clear()
        mesh.settle()
        assert publisher.acknowledged() == [101]

    def test_lets_the_oldest_go_for_want_of_room_and_it_is_counted(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        publisher = Guest(mesh, "p", "publisher")
        for number in range(40):
            publisher.publish("t", bytes([number]) * 200_000, 200 + number)
            mesh.settle()
        assert mesh.nodes["d"].core.counters["held_dropped"] == 35
        assert len(pending(mesh, "d")) == 5
        holder = care(mesh, holder_of(mesh, "d"))
        assert holder.counters()["copies_dropped"] == 35


class TestAPublicationThatIsSentAgain:
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

    def test_is_not_for_who_has_it(self, mesh: Network) -> None:
        client = Guest(mesh, "e", "c")
        client.subscribe("t")
        mesh.settle()
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        client.delivered(b"1", 1)
        mesh.settle()
        kill(mesh, "d")
        again = Guest(mesh, "p", "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert again.acknowledged() == [7]
        assert [pending(mesh, name) for name in "eph"] == [[], [], []]

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

    def test_reaches_its_broker_if_that_had_not_answered_when_the_publisher_left(self, mesh: Network) -> None:
        Guest(mesh, "d", "subscriber").subscribe("t")
        mesh.settle()
        publisher = Guest(mesh, "d", "publisher")
        publisher.send(Publish("t", b"1", 1, packet_id=7))
        publisher.pair.ended()
        mesh.settle()
        again = Guest(mesh, "d", "publisher")
        reached = []
        for _ in range(2):
            again.publish("t", b"1", packet_id=7, dup=True)
            reached.append(again.to_broker != b"")
            mesh.settle()
        assert again.acknowledged() == [7, 7]
        assert reached == [True, False]
        assert len(pending(mesh, "d", "subscriber")) == 1

    def test_reaches_a_broker_whose_node_knows_it_from_other_sites_only(self, mesh: Network) -> None:
        client = Guest(mesh, "e", "c")
        client.subscribe("t")
        Guest(mesh, "h", "subscriber").subscribe("t")
        mesh.settle()
        mesh.stuck.add(("d", "e"))
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        kill(mesh, "d")
        again = Guest(mesh, "e", "publisher")
        mesh.settle()
        again.publish("t", b"1", packet_id=7, dup=True)
        assert again.to_broker != b""
        client.delivered(b"1", 1)
        mesh.settle()
        assert again.acknowledged() == [7]
        assert client.payloads() == [b"1"]
        assert pending(mesh, "e", "c") == []

    def test_is_swallowed_before_the_broker_acknowledges_it_if_the_client_had_it_elsewhere(
        self, mesh: Network
    ) -> None:
        client = Guest(mesh, "h", "c")
        client.subscribe("t")
        mesh.settle()
        mesh.stuck.add(("d", "e"))
        Guest(mesh, "d", "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        client.delivered(b"1", 1)
        kill(mesh, "d")
        moved = Guest(mesh, "e", "c")
        moved.subscribe("t")
        again = Guest(mesh, "e", "publisher")
        mesh.settle()
        again.send(Publish("t", b"1", 1, False, True, 7))
        moved.broker(Publish("t", b"1", 1, packet_id=1))
        again.broker(PubAck(7))
        mesh.settle()
        assert again.acknowledged() == [7]
        assert moved.payloads() == []
        assert pending(mesh, "e", "c") == []

    def test_does_not_undo_what_was_retained_since(self, mesh: Network) -> None:
        publisher = Guest(mesh, "d", "publisher")
        for number, payload, dup in ((7, b"1", False), (8, b"2", False), (7, b"1", True)):
            publisher.send(Publish("t", payload, 1, True, dup, number))
            if publisher.to_broker:
                publisher.broker(PubAck(number))
            mesh.settle()
        frames = [node.core.retained.index.frame("t") for node in mesh.nodes.values()]
        assert [frame is not None and frame.endswith(b"2") for frame in frames] == [True] * 4
        assert publisher.acknowledged() == [7, 8, 7]

    def test_is_retained_at_all_sites_if_its_own_has_forgotten_it(self, mesh: Network) -> None:
        publisher = Guest(mesh, "d", "publisher")
        publisher.publish("nobody wants it", b"")  # what d remembers it forgets earlier than others, hence
        mesh.advance(50.0)
        for seconds, number, payload, dup in ((0, 7, b"1", False), (0, 8, b"2", False), (71, 7, b"1", True)):
            for _ in range(seconds):
                mesh.advance(1.0)
            publisher.send(Publish("t", payload, 1, True, dup, number))
            publisher.broker(PubAck(number))
            mesh.settle()
        frames = [node.core.retained.index.frame("t") for node in mesh.nodes.values()]
        assert [frame is not None and frame.endswith(b"1") for frame in frames] == [True] * 4

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

    def test_is_had_at_holders_too_that_know_it_by_its_second_name(self, mesh: Network) -> None:
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        holder = holder_of(mesh, "d")
        first, second = [name for name in "eph" if name != holder]
        mesh.stuck.add((first, holder))
        Guest(mesh, first, "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        client.delivered(b"1", 1)
        kill(mesh, first)
        again = Guest(mesh, second, "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert again.acknowledged() == [7]
        assert pending(mesh, holder) == []

    def test_is_not_given_under_the_name_that_only_a_holder_knows(self, mesh: Network) -> None:
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        holder = holder_of(mesh, "d")
        first, second = [name for name in "eph" if name != holder]
        mesh.stuck.add((first, "d"))
        Guest(mesh, first, "publisher").publish("t", b"1", packet_id=7)
        mesh.settle()
        kill(mesh, first)
        again = Guest(mesh, second, "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert again.acknowledged() == [7]
        client.delivered(b"1", 1)
        mesh.advance(DEAD_SECONDS)
        assert client.payloads() == [b"1"]
        assert [pending(mesh, name) for name in ("d", holder)] == [[], []]

    @pytest.mark.parametrize("lesser_first", [False, True])
    def test_is_given_once_if_old_and_new_site_of_its_client_know_it_by_different_names(
        self, mesh: Network, lesser_first: bool
    ) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        holder = holder_of(mesh, "d")
        first, second = sorted((name for name in "eph" if name != holder), reverse=not lesser_first)
        Guest(mesh, first, "publisher").publish("t", b"1", packet_id=7)
        Guest(mesh, "d", "another").subscribe("u")  # its home tells the holder: that had come by then
        mesh.settle()
        kill(mesh, first)
        kill(mesh, "d")
        moved = Guest(mesh, holder, "c")
        again = Guest(mesh, second, "publisher")
        again.publish("t", b"1", packet_id=7, dup=True)
        mesh.settle()
        assert again.acknowledged() == [7]
        mesh.advance(DEAD_SECONDS)
        moved.subscribe("t")
        mesh.settle()
        assert moved.payloads() == [b"1"]
        moved.answer_all()
        mesh.settle()
        assert [pending(mesh, name) for name in (holder, second)] == [[], []]

    def test_without_dup_is_another_one(self, mesh: Network) -> None:
        Guest(mesh, "h", "subscriber").subscribe("t")
        mesh.settle()
        publisher = Guest(mesh, "d", "publisher")
        publisher.publish("t", b"1", packet_id=7)
        publisher.publish("t", b"1", packet_id=7)
        mesh.settle()
        assert injected(mesh, "h") == [b"1", b"1"]


def test_what_was_published_at_qos_0_is_kept_for_nobody(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t", 0)
    mesh.settle()
    publisher = Guest(mesh, "p", "publisher")
    publisher.send(Publish("t", b"0"))
    publisher.publish("t", b"1")
    mesh.settle()
    assert pending(mesh, "d") == [b"1"]
