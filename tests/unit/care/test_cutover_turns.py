"""What a client that came back lacks: by the order of SUBSCRIBEs, of publications, and of what is heard."""

from dataclasses import replace

from brokerweave.care.cutover import Cutover
from brokerweave.care.held import Held
from brokerweave.care.injections import InjectionLog
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from tests.unit.care.messages import held, sequences


def site(filters: str = "#", before: Cutover | None = None, log: InjectionLog | None = None) -> Cutover:
    log = log if log is not None else InjectionLog()
    return Cutover(log.open(), log.tick(), {filters: 1}, log, me="e", before=before)


def published_here(sequence: int) -> Held:
    return held(sequence, origin="e")


def test_a_subscribe_is_judged_when_those_before_it_are() -> None:
    log = InjectionLog()
    first = site("+", log=log)
    second = site("#", before=first, log=log)
    assert not second.complete
    first.ready(0)
    assert second.complete


def test_what_was_published_here_after_suback_comes_from_the_broker() -> None:
    cutover = site()
    cutover.reborn("e", 1, [3])
    cutover.offer(map(published_here, (3, 4)))
    assert sequences(cutover.ready(0)) == [3]


def test_what_was_published_here_before_suback_and_acknowledged_after_it_is_in_doubt() -> None:
    log = InjectionLog()
    cutover = site(log=log)
    cutover.reborn("e", 1, [3])
    for sequence in (4, 5):
        log.own(published_here(sequence).id)
        cutover.published(published_here(sequence), f"publisher {sequence}")
    assert not cutover.complete
    cutover.live(published_here(5).hash)
    assert sequences(cutover.ready(0)) == [4]
    assert cutover.doubted == 1


def test_a_broker_that_delivered_one_of_a_publisher_delivers_those_that_follow_it() -> None:
    log = InjectionLog()
    cutover = site(log=log)
    cutover.reborn("e", 1, [0])
    for sequence in (1, 2, 3):
        log.own(published_here(sequence).id)
        cutover.published(published_here(sequence), "publisher")
    cutover.live(published_here(2).hash)
    assert sequences(cutover.ready(0)) == [1]


def test_what_a_later_life_of_this_node_published_a_session_that_goes_on_has() -> None:
    cutover = site()
    cutover.reborn("e", 2, [5])
    cutover.ready(0)
    lives = [held(9, epoch=epoch, origin="e") for epoch in (1, 2, 3)]
    assert [bool(cutover.late(one, 0)) for one in lives] == [True, False, False]


def test_the_cuts_of_each_nodes_latest_life_can_be_kept() -> None:
    cutover = site()
    cutover.reborn("e", 2, [5, 6])
    cutover.add_cut("p", 1, [9, 9])
    cutover.reborn("p", 3, [1, 2])
    assert cutover.cuts == {"e": (2, [5, 6]), "p": (3, [1, 2])}


def test_who_kept_what_the_broker_got_late_hears_when_the_client_has_it() -> None:
    cutover = site()
    cutover.add_cut("p", 1, [1])
    cutover.ready(0)
    before, after = held(1), held(2)
    for one in (before, after):
        cutover.overtaken(one.id, one.publish.topic, one.hash)
    assert not cutover.has(before)
    assert cutover.received((before.hash, after.hash)) == [before.id]
    assert cutover.held_for_here(before.id)
    assert cutover.has(before)
    assert cutover.late(before, 0) == []


def test_what_the_broker_gave_after_all_was_judged_settles_a_doubt() -> None:
    log = InjectionLog()
    log.sent_before(held(1).id)
    cutover = site(log=log)
    cutover.ready(0)
    assert cutover.received((held(1).hash,)) == []
    assert cutover.late(held(1), 0) == []


def test_an_equal_one_written_after_suback_settles_no_doubt() -> None:
    log = InjectionLog()
    log.sent_before(held(1, "same").id)
    cutover = site(log=log)
    cutover.ready(0)
    log.open()
    equal = held(2, "same")
    frame = codec.encode(replace(equal.publish, packet_id=1), 4)
    log.queued(equal.id, Run("p", 1, 2, 1, 4, 1, 1, 0.0, frame))
    log.sent(equal.id)
    cutover.received((equal.hash,))
    assert sequences(cutover.late(held(1, "same"), 0)) == [1]


def test_what_the_broker_delivered_before_suback_is_not_given() -> None:
    cutover = site()
    cutover.offer(map(held, (1, 2)))
    cutover.already([held(1).hash])
    cutover.received([held(1).hash])
    assert sequences(cutover.ready(0)) == [2]
    assert cutover.known == [held(1).id]


def test_a_session_that_is_older_than_what_is_known_of_it_may_have_anything() -> None:
    cutover = site()
    cutover.older = True
    cutover.add_cut("p", 1, [2])
    cutover.offer(map(held, (1, 2)))
    assert not cutover.complete
    cutover.live(held(2).hash)
    assert sequences(cutover.ready(0)) == [1]
    assert cutover.doubted == 1


def test_what_the_broker_gave_before_anybody_asked_the_client_is_known_to_have() -> None:
    log = InjectionLog()
    cutover = site(log=log)
    log.open()
    cutover.ready(0)
    log.sent(held(1).id)
    assert not cutover.knows(held(1))
    cutover.received([held(1).hash])
    assert cutover.knows(held(1))
    assert cutover.late(held(1), 0) == []
