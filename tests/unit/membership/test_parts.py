"""Gossip, suspicion, health, agenda, presets, and the table's round of probes."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import pytest

from brokerweave.membership.agenda import Agenda
from brokerweave.membership.gossip import Gossip, Subject
from brokerweave.membership.health import LocalHealth
from brokerweave.membership.members import Claim, MemberRecord, Members, MemberState
from brokerweave.membership.presets import LAN, PRESETS, Preset
from brokerweave.membership.suspicion import Suspicion

A, B = Subject("a", False), Subject("b", False)


def test_each_piece_of_news_goes_out_as_often_as_asked_and_no_more() -> None:
    gossip = Gossip()
    gossip.put(A, b"aaaaaaaa")
    assert [gossip.take(100, 3) for _ in range(4)] == [b"aaaaaaaa"] * 3 + [b""]
    assert not gossip


def test_what_was_passed_on_least_goes_first() -> None:
    gossip = Gossip()
    gossip.put(A, b"aaaaaaaa")
    gossip.take(100, 9)
    gossip.put(B, b"bbbbbbbb")
    assert gossip.take(10, 9) == b"bbbbbbbb"
    assert gossip.take(16, 9) == b"aaaaaaaabbbbbbbb"


def test_newer_news_of_a_member_takes_the_place_of_older_but_metadata_does_not() -> None:
    gossip = Gossip()
    gossip.put(A, b"old-news")
    gossip.put(Subject("a", True), b"metadata")
    gossip.put(A, b"new-news")
    assert sorted([gossip.take(8, 9), gossip.take(8, 9)]) == [b"metadata", b"new-news"]
    assert len(gossip) == 2


def test_news_that_does_not_fit_waits_and_lets_shorter_news_pass() -> None:
    gossip = Gossip()
    gossip.put(A, b"a" * 50)
    gossip.put(B, b"b" * 10)
    assert gossip.take(20, 1) == b"b" * 10
    assert gossip.take(60, 1) == b"a" * 50


def test_a_suspicion_that_nobody_confirms_lasts_longest_and_each_confirmation_shortens_it() -> None:
    suspicion = Suspicion("a", 100.0, 1.0, 5.0, 2)
    ends = [suspicion.end]
    for accuser in "bc":
        assert suspicion.confirm(accuser)
        ends.append(suspicion.end)
    assert ends[0] == 105.0
    assert 101.0 < ends[1] < 105.0
    assert ends[2] == pytest.approx(101.0)


def test_an_accuser_counts_once_and_more_than_needed_do_not() -> None:
    suspicion = Suspicion("a", 100.0, 1.0, 5.0, 1)
    assert not suspicion.confirm("a")
    assert suspicion.confirm("b")
    assert not suspicion.confirm("c")


def test_a_suspicion_that_nobody_could_confirm_is_short() -> None:
    assert Suspicion("a", 100.0, 1.0, 5.0, 0).end == 101.0


def test_health_stays_within_its_bounds_and_scales_times() -> None:
    health = LocalHealth(3)
    health.change(-1)
    assert health.scaled(0.5) == 0.5
    health.change(9)
    assert (health.score, health.scaled(0.5)) == (3, 2.0)


def test_the_agenda_runs_what_is_due_in_order_and_skips_what_was_called_off() -> None:
    agenda, ran = Agenda(), []
    agenda.at(3.0, lambda now: ran.append("third"))
    agenda.at(1.0, lambda now: ran.append("first"))
    agenda.at(2.0, lambda now: ran.append("off")).cancel()
    assert agenda.next_due() == 1.0
    agenda.run(2.5)
    assert (ran, agenda.next_due()) == (["first"], 3.0)
    agenda.shift(10.0)
    assert agenda.next_due() == 13.0
    agenda.clear()
    assert agenda.next_due() == inf


@pytest.mark.parametrize("preset", PRESETS.values())
def test_every_preset_leaves_time_for_indirect_probes_and_for_objections(preset: Preset) -> None:
    shortest, longest = preset.suspicion_times(4)
    assert preset.probe_timeout <= preset.probe_interval / 3
    assert 2 * preset.probe_interval < shortest < longest
    assert preset.gossip_interval <= preset.probe_interval


def test_the_lan_preset_probes_at_least_every_quarter_of_a_second() -> None:
    assert LAN.probe_interval <= 0.25


def test_news_is_passed_on_more_often_the_more_members_there_are_but_only_by_the_logarithm() -> None:
    assert LAN.transmissions(4) < LAN.transmissions(50) < LAN.transmissions(1000) < 2 * LAN.transmissions(50)


def table(count: int) -> Members:
    members = Members(Random(1))
    for number in range(count):
        claim = Claim(f"n{number}", number + 1, ("10.0.0.1", number + 1))
        members.put(MemberRecord(claim, 0))
    return members


def targets(members: Members, count: int) -> list[str]:
    return [record.claim.id for _ in range(count) if (record := members.next_target()) is not None]


def test_each_round_probes_everyone_once_and_rounds_differ_in_order() -> None:
    members = table(20)
    rounds = [targets(members, 20) for _ in range(4)]
    assert all(len(set(each)) == 20 for each in rounds[1:])
    assert rounds[1] != rounds[2]


def test_who_came_in_the_middle_of_a_round_is_probed_within_it() -> None:
    members = table(10)
    targets(members, 25)
    members.put(MemberRecord(Claim("new", 99, ("10.0.0.1", 99)), 0))
    assert "new" in targets(members, 6)


def test_the_dead_are_neither_probed_nor_chosen() -> None:
    members = table(6)
    record = members.get("n3")
    assert record is not None
    members.move(record, MemberState.DEAD)
    assert "n3" not in targets(members, 20)
    assert all("n3" not in [r.claim.id for r in members.choose(5)] for _ in range(10))
    assert (members.here, [r.claim.id for r in members.dead]) == (5, ["n3"])
    members.move(record, MemberState.ALIVE)
    assert "n3" in targets(members, 12)


def test_members_are_chosen_without_repetition_and_evenly() -> None:
    members = table(10)
    chosen = Counter(r.claim.id for _ in range(1000) for r in members.choose(3, ("n0",)))
    assert set(chosen) == {f"n{number}" for number in range(1, 10)}
    assert max(chosen.values()) < 1.3 * min(chosen.values())
    assert len({r.claim.id for r in members.choose(3)}) == 3
    assert len(members.choose(30, ("n0",))) == 9


def test_a_member_that_is_forgotten_leaves_nothing_behind() -> None:
    members = table(3)
    members.forget("n1")
    assert members.get("n1") is None
    assert members.of_boot(2) is None
    assert set(targets(members, 6)) == {"n0", "n2"}
