"""Probes, answers, standing still, strangers, joining: one node among a few."""

from __future__ import annotations

from random import Random

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.membership import exchange, wire
from brokerweave.membership.members import MemberState
from brokerweave.membership.presets import LAN, MOST_DATAGRAM
from brokerweave.membership.seal import MAC
from tests.unit.membership.cluster import Node, acquaint, deliver, talk, together


def kinds(node: Node) -> list[str]:
    return [wire.MessageKind(data[1]).name for data, _ in node.sent]


def cluster(names: str) -> list[Node]:
    nodes = [Node(name) for name in names]
    acquaint(*nodes)
    together(1.0, *nodes)
    for node in nodes:
        node.events.clear()
    return nodes


def test_a_member_is_probed_in_every_interval_and_its_answer_is_timed() -> None:
    a, b = cluster("ab")
    steps = 0
    while not a.sent:
        a.pass_time(0.01)
        steps += 1
    assert steps * 0.01 <= LAN.probe_interval + 0.01
    assert kinds(a) == ["PING"]
    a.now += 0.01
    b.now = a.now
    deliver(a, b)
    member = a.swim.member("b")
    assert member is not None
    assert member.round_trip is not None
    assert member.round_trip > 0
    assert a.swim.health == 0


def test_a_probe_that_is_not_answered_is_repeated_and_asked_of_others_before_anyone_is_accused() -> None:
    nodes = cluster("abcde")
    a = nodes[0]
    a.swim.check("b", a.now)
    a.pass_time(2 * LAN.probe_timeout)
    others = [to for data, to in a.sent if data[1] == wire.MessageKind.REQUEST]
    assert len(others) == LAN.relays
    assert ("10.0.0.98", 7946) not in others
    assert a.state("b") == "ALIVE"
    a.pass_time(LAN.probe_interval - 2 * LAN.probe_timeout)
    assert a.state("b") == "SUSPECT"
    assert "Suspected b" in a.hears()


def test_a_member_that_only_others_reach_is_not_suspected() -> None:
    nodes = cluster("abcd")
    a, b = nodes[:2]
    for _ in range(400):
        for node in nodes:
            node.pass_time(0.01)
        # The way between a and b is broken in both directions.
        a.sent = [(data, to) for data, to in a.sent if to != b.address]
        b.sent = [(data, to) for data, to in b.sent if to != a.address]
        deliver(*nodes, rounds=1)
    assert "Suspected b" not in a.hears()
    assert "Suspected a" not in b.hears()


def test_who_is_asked_for_a_probe_says_so_when_there_is_no_answer() -> None:
    nodes = cluster("abc")
    a, _, c = nodes
    a.swim.check("b", a.now)
    a.pass_time(2 * LAN.probe_timeout)
    deliver(a, c)
    c.sent.clear()
    c.pass_time(LAN.probe_timeout)
    assert "NACK" in kinds(c)


def test_a_node_that_nobody_answers_takes_itself_for_slow_and_gives_more_time() -> None:
    a, *_ = cluster("abcde")
    a.pass_time(3.0)
    assert a.swim.health == LAN.health_max
    a.sent.clear()
    a.pass_time(LAN.probe_interval * 3)
    assert kinds(a).count("PING") <= 2


def test_a_node_that_is_answered_again_recovers_its_health() -> None:
    nodes = cluster("abcde")
    nodes[0].pass_time(1.0)
    nodes[0].sent.clear()
    for node in nodes[1:]:
        node.now = nodes[0].now
    assert nodes[0].swim.health > 0
    together(20.0, *nodes, step=0.02)
    assert nodes[0].swim.health == 0
    assert all(node.state(other) == "ALIVE" for node in nodes for other in "abcde")


def test_a_node_that_was_paused_accuses_nobody_for_answers_it_has_not_read() -> None:
    a, b = cluster("ab")
    a.swim.check("b", a.now)
    deliver(b)
    answers = [(data, a.address, b) for data, _ in a.sent]
    a.sent.clear()
    for data, source, receiver in answers:
        receiver.swim.handle(data, source, receiver.now)
    a.now += 30.0
    b.now = a.now
    a.swim.tick(a.now)
    assert a.swim.stalls == 1
    deliver(a, b)
    together(1.0, a, b)
    assert "Suspected b" not in a.hears()


def test_a_suspicion_does_not_run_out_while_its_holder_is_paused() -> None:
    nodes = cluster("abcd")
    a = nodes[0]
    a.swim.rules.apply(wire.Suspect("b", 0, "a"), None, a.now)
    a.now += 60.0
    a.swim.tick(a.now)
    assert a.state("b") == "SUSPECT"
    a.swim.rules.apply(wire.Suspect("b", 0, "c"), None, a.now)
    a.swim.rules.apply(wire.Suspect("b", 0, "d"), None, a.now)
    a.pass_time(0.1)
    assert a.state("b") == "SUSPECT"


def test_who_was_declared_dead_while_it_was_paused_is_told_and_refutes_it() -> None:
    nodes = cluster("abc")
    a, b, c = nodes
    together(8.0, a, c)
    assert a.state("b") == c.state("b") == "DEAD"
    b.sent.clear()
    b.now = a.now
    b.swim.tick(b.now)
    together(1.0, a, b, c)
    assert a.state("b") == c.state("b") == "ALIVE"
    assert a.hears()[-1] == "Joined b"


def test_the_prober_is_set_right_about_what_it_missed() -> None:
    a, b = cluster("ab")
    b.swim.set_meta(b"missed", b.now)
    b.pass_time(3.0)
    b.sent.clear()
    a.now = b.now
    a.swim.check("b", a.now)
    deliver(a, b)
    assert "Changed b" in a.hears()


def test_the_table_of_a_prober_that_is_not_known_is_asked_for() -> None:
    a, b = Node("a"), Node("b")
    a.swim.merge(b.swim.table(), "b", a.now)  # and b has not heard of a
    a.swim.check("b", a.now)
    deliver(a, b)
    assert b.called == [a.address]
    assert a.swim.health == 0, "it was answered all the same"


def test_garbage_unauthenticated_datagrams_and_replays_change_nothing_and_are_counted() -> None:
    a, b = cluster("ab")
    stranger = Node("s", key=b"another key")
    acquaint(a, b)
    stranger.swim.merge(a.swim.table()[:1], "a", 100.0)
    stranger.swim.rules.apply(wire.Dead("b", 99, "s"), None, 100.0)
    stranger.swim.check("a", stranger.now)
    (forged, _), *_ = stranger.sent
    a.swim.check("b", a.now)
    recorded = a.sent[-1][0]
    b.swim.handle(recorded, a.address, b.now)
    before, table = dict(a.swim.refused), a.swim.table()
    random = Random(1)
    for _ in range(50):
        a.swim.handle(random.randbytes(random.randrange(200)), ("10.9.9.9", 9), a.now)
    a.swim.handle(forged, stranger.address, a.now)
    a.swim.handle(recorded, b.address, a.now)
    b.swim.handle(recorded, a.address, b.now)
    assert sum(a.swim.refused.values()) - sum(before.values()) == 52
    assert a.swim.refused["unauthentic"] >= 1
    assert a.swim.refused["misdirected"] == 1
    assert b.swim.refused["replayed"] == 1
    assert a.swim.table() == table
    assert a.hears() == []


def test_an_authentic_datagram_of_another_make_is_refused_as_a_whole() -> None:
    a, b = cluster("ab")
    good = wire.encode_update(wire.Dead("b", 50, "c"))
    a.swim.handle(b.swim._seal.close(wire.MessageKind.GOSSIP, ord("a"), good + b"\xee"), b.address, a.now)
    assert a.state("b") == "ALIVE"
    assert a.swim.refused["malformed"] == 1


def test_no_datagram_is_longer_than_the_limit_however_much_news_there_is() -> None:
    a, *_ = cluster("abc")
    for number in range(200):
        node = Node("z", boot=1000 + number)
        claim = node.swim.table()[0].claim
        named = type(claim)(f"member-{number}", claim.boot, claim.address, claim.link_address, 1, b"m" * 100)
        a.swim.rules.apply(wire.Alive(named, 0), None, a.now)
    a.sent.clear()
    a.pass_time(1.0)
    sizes = [len(data) for data, _ in a.sent]
    assert MOST_DATAGRAM - 200 < max(sizes) <= MOST_DATAGRAM
    assert min(sizes) > MAC


def test_one_exchange_makes_two_clusters_one() -> None:
    left, right = cluster("abc"), cluster("xyz")
    talk(left[0], right[0])
    together(2.0, *left, *right)
    assert all(node.swim.here == 6 for node in [*left, *right])


def test_a_split_heals_after_both_halves_held_each_other_for_dead() -> None:
    left, right = cluster("ab"), cluster("cd")
    talk(left[0], right[0])
    together(1.0, *left, *right)
    for half in (left, right):
        together(12.0, *half)
        assert all(node.swim.here == 2 for node in half)
        assert right[0].address in left[0].called or half is right
    for node in right:
        node.now = left[0].now = left[1].now = max(n.now for n in [*left, *right])
    talk(left[0], right[0])
    together(3.0, *left, *right)
    assert all(node.swim.here == 4 for node in [*left, *right])


def test_joining_calls_every_address_but_its_own_and_again_while_alone() -> None:
    a = Node("a")
    seeds = [("10.0.0.98", 7946), ("10.0.0.99", 7946)]
    a.swim.join([*seeds, a.address], a.now)
    assert a.called == seeds
    a.pass_time(3 * LAN.reconnect_interval)
    assert a.called.count(seeds[0]) >= 3


def test_the_dead_are_called_now_and_then() -> None:
    a, b = cluster("ab")
    a.swim.rules.apply(wire.Dead("b", 0, "a"), None, a.now)
    a.pass_time(3 * LAN.reconnect_interval)
    assert b.address in a.called


def test_tables_are_exchanged_now_and_then_with_somebody() -> None:
    a, b = cluster("ab")
    a.called.clear()
    together(2 * LAN.push_pull_interval, a, b, step=0.05)
    assert a.called.count(b.address) >= 1


def test_an_exchange_with_another_key_fails_on_both_sides_and_teaches_nothing() -> None:
    a, b = Node("a"), Node("b", key=b"another")
    mine = a.swim.exchange(True, lambda size: b"1" * size)
    theirs = b.swim.exchange(False, lambda size: b"2" * size)
    push = mine.receive(theirs.start(), a.now)
    with pytest.raises(RemoteProtocolError, match="another key"):
        theirs.receive(mine.start() + push, b.now)
    assert (b.state("a"), b.swim.refused["unauthentic"]) == ("unknown", 1)


def test_a_recorded_exchange_proves_nothing_in_another_conversation() -> None:
    a, b = Node("a"), Node("b")
    mine = a.swim.exchange(True, lambda size: b"1" * size)
    theirs = b.swim.exchange(False, lambda size: b"2" * size)
    recorded = mine.start() + mine.receive(theirs.start(), a.now)
    later = b.swim.exchange(False, lambda size: b"3" * size)
    with pytest.raises(RemoteProtocolError):
        later.receive(recorded, b.now)


def test_a_table_reflected_to_its_sender_is_refused() -> None:
    a = Node("a")
    mine = a.swim.exchange(True, lambda size: b"1" * size)
    push = mine.receive(mine.start(), a.now)
    with pytest.raises(RemoteProtocolError):
        mine.receive(push, a.now)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"BWX\x02" + bytes(16), b"\xff"])
def test_what_does_not_begin_as_an_exchange_is_refused_at_once(data: bytes) -> None:
    a = Node("a")
    with pytest.raises(RemoteProtocolError):
        a.swim.exchange(False, lambda size: b"1" * size).receive(data, a.now)
    assert sum(a.swim.refused.values()) == 1


def test_for_an_unauthenticated_peer_not_even_a_short_table_is_gathered() -> None:
    a = Node("a")
    with pytest.raises(RemoteProtocolError):
        a.swim.exchange(False, lambda size: b"1" * size).receive(
            b"BWX\x01" + bytes(16) + b"\0\0\1\0" + bytes(32), a.now
        )
    assert a.swim.refused["unauthentic"] == 1


def test_a_table_longer_than_the_limit_is_refused_before_it_is_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = Node("a"), Node("b")
    monkeypatch.setattr(exchange, "MOST_TABLE", 10)
    mine = a.swim.exchange(True, lambda size: b"1" * size)
    theirs = b.swim.exchange(False, lambda size: b"2" * size)
    push = mine.receive(theirs.start(), a.now)
    with pytest.raises(RemoteProtocolError, match="bytes"):
        theirs.receive(mine.start() + push[: 4 + 32], b.now)
    assert b.swim.refused["too_long"] == 1


def test_an_exchange_may_come_byte_by_byte() -> None:
    a, b = Node("a"), Node("b")
    mine = a.swim.exchange(True, lambda size: b"1" * size)
    theirs = b.swim.exchange(False, lambda size: b"2" * size)
    to_b, to_a = mine.start(), theirs.start()
    for _ in range(3):
        to_b += b"".join(mine.receive(bytes([byte]), a.now) for byte in to_a)
        to_a = b"".join(theirs.receive(bytes([byte]), b.now) for byte in to_b)
        to_b = b""
    assert mine.finished
    assert theirs.finished
    assert (a.state("b"), b.state("a")) == ("ALIVE", "ALIVE")


def test_a_good_bye_is_not_taken_for_a_death() -> None:
    nodes = cluster("abcd")
    nodes[3].swim.leave(nodes[3].now)
    together(0.5, *nodes)
    assert nodes[3].swim.departed
    assert all(node.hears() == ["Left d"] for node in nodes[:3])
    together(10.0, *nodes[:3], step=0.05)
    assert all(node.hears() == [] for node in nodes[:3])
    assert all(node.swim.members()[0].state is MemberState.ALIVE for node in nodes[:3])
