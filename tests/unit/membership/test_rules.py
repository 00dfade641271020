"""Who wins when news of a member differs, and what comes of it."""

from __future__ import annotations

from itertools import permutations

import pytest

from brokerweave.errors import LocalProtocolError
from brokerweave.membership import wire
from brokerweave.membership.members import Claim, MemberState
from brokerweave.membership.presets import LAN
from brokerweave.membership.rules import CONFLICT_SECONDS
from tests.unit.membership.cluster import Node, acquaint, deliver, talk, together

B = Claim("b", ord("b"), ("10.0.0.98", 7946), ("10.0.0.1", 7000))


def two() -> tuple[Node, Node]:
    a, b = Node("a"), Node("b")
    acquaint(a, b)
    return a, b


def tell(node: Node, *updates: wire.Update) -> list[str]:
    for update in updates:
        node.swim.rules.apply(update, None, node.now)
    return node.hears()


def test_who_is_not_known_yet_joins() -> None:
    a = Node("a")
    assert tell(a, wire.Alive(B, 0)) == ["Joined b"]
    assert tell(a, wire.Alive(B, 0)) == []
    member = a.swim.member("b")
    assert member is not None
    assert (member.address, member.link_address) == (B.address, B.link_address)


def test_an_accusation_of_who_is_not_known_changes_nothing() -> None:
    a = Node("a")
    assert tell(a, wire.Suspect("x", 9, "b"), wire.Dead("x", 9, "b"), wire.Gone("x", 9)) == []
    assert a.state("x") == "unknown"


@pytest.mark.parametrize(
    ("accusation", "heard", "state"),
    [
        (wire.Suspect("b", 0, "c"), ["Suspected b"], "SUSPECT"),
        (wire.Dead("b", 0, "c"), ["Died b"], "DEAD"),
        (wire.Gone("b", 0), ["Left b"], "LEFT"),
    ],
)
def test_an_accusation_counts_unless_its_number_is_lower(
    accusation: wire.Suspect | wire.Dead | wire.Gone, heard: list[str], state: str
) -> None:
    a, _ = two()
    tell(a, wire.Alive(B, 1))
    assert tell(a, accusation) == []
    assert a.state("b") == "ALIVE"
    assert tell(a, accusation._replace(incarnation=1)) == heard
    assert a.state("b") == state


@pytest.mark.parametrize(
    ("accusation", "heard"),
    [
        (wire.Suspect("b", 3, "c"), "Refuted b"),
        (wire.Dead("b", 3, "c"), "Joined b"),
        (wire.Gone("b", 3), "Joined b"),
    ],
)
def test_only_a_higher_number_brings_a_member_back(accusation: wire.Update, heard: str) -> None:
    a, _ = two()
    tell(a, wire.Alive(B, 3), accusation)
    assert tell(a, wire.Alive(B, 3), wire.RefutedUpdate("b", B.boot, 3)) == []
    assert tell(a, wire.RefutedUpdate("b", B.boot, 4)) == [heard]
    assert a.state("b") == "ALIVE"


def test_the_order_in_which_news_arrives_does_not_matter() -> None:
    news: list[wire.Update] = [
        wire.Alive(B, 2),
        wire.Suspect("b", 1, "c"),
        wire.Suspect("b", 2, "c"),
        wire.Alive(B, 3),
    ]
    for order in permutations(news):
        a, _ = two()
        tell(a, *order)
        member = a.swim.member("b")
        assert member is not None
        assert (member.state.name, member.incarnation) == ("ALIVE", 3)
    for order in permutations([*news[:3], wire.Dead("b", 2, "c")]):
        a, _ = two()
        tell(a, *order)
        assert a.state("b") == "DEAD"


def test_the_dead_who_are_heard_to_have_left_are_told_of_once() -> None:
    a, _ = two()
    assert tell(a, wire.Dead("b", 0, "c"), wire.Gone("b", 0), wire.Dead("b", 0, "c")) == ["Died b"]
    assert a.state("b") == "LEFT"


def test_metadata_has_a_number_of_its_own_and_goes_through_to_a_suspect() -> None:
    a, _ = two()
    tell(a, wire.Suspect("b", 0, "c"))
    assert tell(a, wire.MetaUpdate("b", B.boot, 2, b"new")) == ["Changed b"]
    assert tell(a, wire.MetaUpdate("b", B.boot, 1, b"old"), wire.MetaUpdate("b", 7, 9, b"another life")) == []
    member = a.swim.member("b")
    assert member is not None
    assert (member.meta, member.state.name, member.incarnation) == (b"new", "SUSPECT", 0)


def test_an_older_claim_does_not_take_newer_metadata_back() -> None:
    a, _ = two()
    tell(a, wire.MetaUpdate("b", B.boot, 2, b"new"))
    tell(a, wire.Alive(B, 5))
    member = a.swim.member("b")
    assert member is not None
    assert (member.meta, member.incarnation) == (b"new", 5)


def test_who_restarted_unnoticed_has_died_and_joined() -> None:
    a, _ = two()
    reborn = Claim("b", 777, B.address, B.link_address)
    assert tell(a, wire.Alive(reborn, 1)) == ["Died b", "Joined b"]
    member = a.swim.member("b")
    assert member is not None
    assert member.boot == 777


def test_a_life_that_does_not_know_its_number_is_told_and_rises_above_it() -> None:
    """A crash lost the incarnation, and whom it joined through had never heard of it."""
    a, _ = two()
    tell(a, wire.Alive(B, 5), wire.Dead("b", 5, "c"))
    reborn = Node("b", boot=777)
    c = Node("c")
    acquaint(a, c)
    talk(reborn, c)
    together(2.0, a, c, reborn)
    assert a.state("b") == c.state("b") == "ALIVE"
    assert reborn.swim.me.incarnation == 6
    assert "Joined b" in a.hears()


def test_who_left_can_come_back_under_its_name() -> None:
    a, b = two()
    b.swim.leave(b.now)
    together(1.0, a, b)
    assert b.swim.departed
    assert a.hears() == ["Left b"]
    again = Node("b", boot=5)
    talk(again, a)
    together(1.0, a, again)
    assert a.hears() == ["Joined b"]
    assert again.hears() == ["Joined a"]


def test_a_suspected_member_objects_with_a_higher_number() -> None:
    a, b = two()
    tell(a, wire.Suspect("b", 0, "a"))
    together(0.5, a, b)
    assert b.swim.me.incarnation == 1
    assert a.hears() == ["Refuted b"]


def test_who_is_accused_takes_it_as_a_sign_of_being_slow() -> None:
    _, b = two()
    tell(b, wire.Suspect("b", 0, "a"))
    assert b.swim.health == 1
    tell(b, wire.Suspect("b", 0, "a"))
    assert (b.swim.health, b.swim.me.incarnation) == (1, 1)


def test_who_leaves_does_not_object_to_being_called_gone() -> None:
    _, b = two()
    b.swim.leave(b.now)
    tell(b, wire.Gone("b", 0), wire.Suspect("b", 3, "a"))
    assert b.swim.me.incarnation == 0


def test_a_suspicion_ends_in_death_and_sooner_when_others_confirm_it() -> None:
    shortest, longest = LAN.suspicion_times(4)
    for confirmed, seconds in ((False, longest), (True, shortest)):
        a, b, c, d = (Node(name) for name in "abcd")
        acquaint(a, b, c, d)
        tell(a, wire.Suspect("b", 0, "a"))
        if confirmed:
            tell(a, wire.Suspect("b", 0, "c"), wire.Suspect("b", 0, "d"))
        a.pass_time(seconds - 0.05)  # the others, who would probe b and confirm, are not heard
        assert a.state("b") == "SUSPECT"
        a.pass_time(0.1)
        assert a.state("b") == "DEAD"
        assert "Died b" in a.hears()


def test_two_processes_with_one_id_are_noticed() -> None:
    a, _ = two()
    other = Claim("a", 999, ("10.0.0.7", 7946))
    said = [tell(a, wire.Alive(other, 10 * (number + 1))) for number in range(6)]
    assert said == [[], [], [], [], ["Conflict a"], []]
    assert a.swim.me.incarnation == 51  # from here on it waits, or the two would go on without end
    a.now += CONFLICT_SECONDS
    tell(a, wire.Alive(other, 90))
    assert a.swim.me.incarnation == 91


def test_metadata_reaches_all_within_a_few_gossip_intervals() -> None:
    nodes = [Node(name) for name in "abcdefgh"]
    acquaint(*nodes)
    together(0.5, *nodes)
    nodes[0].swim.set_meta(b"v2", nodes[0].now)
    together(4 * LAN.gossip_interval, *nodes)
    assert all(node.hears() == ["Changed a"] for node in nodes[1:])
    assert nodes[0].swim.me.incarnation == 0


def test_more_metadata_than_travels_is_refused_at_once() -> None:
    a, _ = two()
    with pytest.raises(LocalProtocolError):
        a.swim.set_meta(b"x" * 129, a.now)


def test_the_dead_are_forgotten_after_a_while() -> None:
    a, _ = two()
    tell(a, wire.Dead("b", 0, "c"))
    a.pass_time(LAN.forget_after - 1)
    assert a.state("b") == "DEAD"
    a.pass_time(2)
    assert a.state("b") == "unknown"


def test_a_newcomer_does_not_spread_what_is_new_only_to_itself() -> None:
    nodes = [Node(name) for name in "bcdefgh"]
    acquaint(*nodes)
    together(2.0, *nodes)
    for node in nodes:
        node.sent.clear()
    a = Node("a")
    talk(a, nodes[0])
    a.pass_time(1.0)
    assert max(len(data) for data, _ in a.sent) < 80
    nodes[0].pass_time(0.2)
    deliver(*nodes)
    assert any(node.state("a") == "ALIVE" for node in nodes[1:])


def test_whoever_holds_an_older_life_tells_the_new_one_of_it() -> None:
    a, reborn = Node("a"), Node("b", boot=777)
    tell(a, wire.Alive(B, 5), wire.Dead("b", 5, "c"))
    a.pass_time(1.0)
    a.sent.clear()
    tell(a, wire.Alive(reborn.swim.table()[0].claim, 0))
    assert [to for _, to in a.sent] == [reborn.address]
    deliver(a, reborn)
    assert reborn.swim.me.incarnation == 6


def test_who_is_dead_only_in_anothers_table_may_still_object() -> None:
    a, _ = two()
    a.swim.merge([wire.TableEntry(MemberState.DEAD, 0, B)], "c", a.now)
    assert a.hears() == ["Suspected b"]
